"""A model hub on the loopback address, as far as the hub's client asks it to bring one repository."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

COMMIT = "c0ffee" + "0" * 34


class FakeHub:
    """Serves the files of one repository at one commit; `asked` are the paths that were asked for."""

    def __init__(self, repository: str, files: dict[str, bytes]) -> None:
        asked: list[str] = []
        self.asked = asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                if self.path.startswith(f"/api/models/{repository}"):
                    siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
                    tree = [{"type": "file", "path": name, "size": len(content), "oid": "0" * 40} for name, content in files.items()]
                    info = {"id": repository, "modelId": repository, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}
                    self.answer(json.dumps(tree if "/tree/" in self.path else info).encode(), {"Content-Type": "application/json"})
                    return
                name = self.path.partition(f"/resolve/{COMMIT}/")[2]
                if name not in files:
                    self.send_error(404)
                    return
                self.answer(files[name], {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(files[name]).hexdigest()}"'})

            do_HEAD = do_GET  # noqa: N815

            def answer(self, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(200)
                for key, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
