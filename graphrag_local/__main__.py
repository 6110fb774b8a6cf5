"""`python -m graphrag_local` is the command line."""

from graphrag_local.cli.main import main

main()
