class ReadProblem(Exception): pass
