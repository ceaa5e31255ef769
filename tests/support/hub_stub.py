"""A local HTTP server with the endpoints of the Hugging Face Hub that uploads and downloads use."""

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
    """State of the server.

    Attributes:
        files: contents by repository and file name.
        private: by repository.
        requests: method and path of each.
        tokens: authorization headers received.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()
        self.address = ""


@contextmanager
def serving() -> Iterator[Hub]:  # noqa: C901 - the endpoints are methods of one nested class
    """Serve on a free port while the block runs."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def send_json(self, value: object, status: int = 200) -> None:
            self.respond(status, json.dumps(value).encode(), Content_Type="application/json")

        def handle_request(self) -> None:
            path = self.path.partition("?")[0]
            hub.requests.append((self.command, path))
            hub.tokens.add(self.headers.get("authorization"))
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if path == "/api/repos/create":
                requested = json.loads(body)
                repo = f"{requested.get('organization') or 'me'}/{requested['name']}"
                hub.files.setdefault(repo, {})
                hub.private.setdefault(
                    repo, requested.get("visibility") == "private" or requested.get("private", False)
                )
                self.send_json({"url": f"{hub.address}/{repo}"})
            elif path == "/api/validate-yaml":
                self.send_json({"errors": [], "warnings": []})
            elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit|tree)/[^/]+", path):
                self.handle_repository(*match.groups(), body)
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
                self.send_file(*match.groups())
            else:
                self.send_json({"error": f"not found: {path}"}, 404)

        do_GET = do_POST = do_HEAD = handle_request  # noqa: N815 - names of http.server

        def handle_repository(self, repo: str, operation: str, body: bytes) -> None:
            if repo not in hub.files:
                self.respond(404, b"{}", X_Error_Code="RepoNotFound")
            elif operation == "preupload":
                names = [file["path"] for file in json.loads(body)["files"]]
                self.send_json(
                    {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
                )
            elif operation == "commit":
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        hub.files[repo][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                address = f"{hub.address}/{repo}/commit/{COMMIT}"
                self.send_json({"success": True, "commitOid": COMMIT, "commitUrl": address, "hookOutput": ""})
            else:
                files = hub.files[repo].items()
                self.send_json(
                    [{"type": "file", "path": name, "size": len(data), "oid": COMMIT} for name, data in files]
                )

        def send_file(self, repo: str, name: str) -> None:
            content = hub.files.get(repo, {}).get(name)
            if content is None:
                self.respond(404, X_Error_Code="EntryNotFound")
                return
            tag = hashlib.sha256(content).hexdigest()
            self.respond(200, content, ETag=f'"{tag}"', X_Repo_Commit=COMMIT, Content_Type="application/octet-stream")

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
