"""A server on this machine that answers the few questions huggingface_hub asks when files go to the Hub and back."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c" * 40


class Hub:
    """What the server has, and what it was asked for.

    Attributes:
        files: by repository and name.
        private: of each repository, whether it is.
        asked: method and path of each request.
        tokens: that came with requests.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.asked: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()
        self.address = ""


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve on a free port inside the block."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def say(self, value: object, status: int = 200) -> None:
            self.answer(status, json.dumps(value).encode(), Content_Type="application/json")

        def handle_request(self) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append((self.command, path))
            hub.tokens.add(self.headers.get("authorization"))
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if path == "/api/repos/create":
                asked = json.loads(body)
                repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
                hub.files.setdefault(repo, {})
                hub.private.setdefault(repo, asked.get("visibility") == "private" or asked.get("private", False))
                self.say({"url": f"{hub.address}/{repo}"})
            elif path == "/api/validate-yaml":
                self.say({"errors": [], "warnings": []})
            elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit|tree)/[^/]+", path):
                self.of_repository(*found.groups(), body)
            elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
                self.file(*found.groups())
            else:
                self.say({"error": f"not found: {path}"}, 404)

        do_GET = do_POST = do_HEAD = handle_request

        def of_repository(self, repo: str, asked: str, body: bytes) -> None:
            if repo not in hub.files:
                self.answer(404, b"{}", X_Error_Code="RepoNotFound")
            elif asked == "preupload":
                names = [file["path"] for file in json.loads(body)["files"]]
                self.say({"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]})
            elif asked == "commit":
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        hub.files[repo][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                address = f"{hub.address}/{repo}/commit/{COMMIT}"
                self.say({"success": True, "commitOid": COMMIT, "commitUrl": address, "hookOutput": ""})
            else:
                files = hub.files[repo].items()
                self.say([{"type": "file", "path": name, "size": len(data), "oid": COMMIT} for name, data in files])

        def file(self, repo: str, name: str) -> None:
            content = hub.files.get(repo, {}).get(name)
            if content is None:
                self.answer(404, X_Error_Code="EntryNotFound")
                return
            tag = hashlib.sha256(content).hexdigest()
            self.answer(200, content, ETag=f'"{tag}"', X_Repo_Commit=COMMIT, Content_Type="application/octet-stream")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
