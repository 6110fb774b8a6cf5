"""A model server for tests: speaks the OpenAI protocol as a vLLM server does and plays scripts of good and bad behaviour.

    with ModelServer({"rules": [{"on": "extract", "calls": "1", "do": {"status": 503}}]}, clock_scale=10) as server:
        ...  # a client, a command line in a child process, anything that is given server.url
        assert [record.status for record in server.requests("extract")] == [503, 200]

What a request is for comes in the header X-Graphrag-Purpose. The keys of a script are listed in script.py.
"""

from tests.modelserver.log import Record
from tests.modelserver.replies import Call
from tests.modelserver.script import Script, ScriptError
from tests.modelserver.server import ModelServer

__all__ = ["Call", "ModelServer", "Record", "Script", "ScriptError"]
