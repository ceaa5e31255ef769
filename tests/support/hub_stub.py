"""A local HTTP server with the endpoints of the Hugging Face Hub that uploads and downloads use."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c" * 40


class Hub:
    """State of the server. The repository of a Space is called ``spaces/user/name``, as in its address.

    Attributes:
        files: contents by repository and file name.
        commits: how many each repository has.
        created: what was asked for when a repository was created.
        hardware: of a Space, as last requested.
        private: by repository.
        requests: method and path of each.
        tokens: authorization headers received.
        stored: large files by their SHA-256, which commits then refer to.
        refusals: status with which a path is answered.
    """

    def __init__(self) -> None:
        self.address = ""
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.files: dict[str, dict[str, bytes]] = {}
        self.commits: dict[str, int] = {}
        self.created: dict[str, dict[str, Any]] = {}
        self.hardware: dict[str, str] = {}
        self.private: dict[str, bool] = {}
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()
        self.stored: dict[str, bytes] = {}
        self.refusals: dict[str, int] = {}

    def sha(self, repo: str) -> str:
        """Return the name of a repository's last commit."""
        return f"{self.commits.get(repo, 0):040x}"

    def commit(self, repo: str, lines: list[dict[str, Any]]) -> str:
        """Apply a commit, all of it or nothing, and return why it is refused, or ""."""
        files = dict(self.files[repo])
        for key, value in ((line["key"], line["value"]) for line in lines):
            if key == "header" and value.get("parentCommit") not in (None, self.sha(repo)):
                return "a commit has happened since"
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
                if repo.startswith("spaces/") and b"\0" in files[value["path"]]:
                    return f"{value['path']}: binary files must be in LFS"
            elif key == "lfsFile":
                if value["oid"] not in self.stored:
                    return f"{value['path']}: not uploaded"
                files[value["path"]] = self.stored[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        self.files[repo] = files
        self.commits[repo] = self.commits.get(repo, 0) + 1
        return ""


@contextmanager
def serving() -> Iterator[Hub]:  # noqa: C901 - the endpoints are methods of one nested class
    """Serve on a free port while the block runs."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # or the client acknowledges the header, 40 ms later, before the body is sent

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
            if path in hub.refusals:
                self.send_json({"error": "refused by the test"}, hub.refusals[path])
            elif path == "/api/repos/create":
                self.create(json.loads(body))
            elif path == "/api/validate-yaml":
                self.send_json({"errors": [], "warnings": []})
            elif match := re.fullmatch(r"/api/(models/|(spaces/))([^/]+/[^/]+)(?:/([a-z]+)(?:/[^/]+)?)?", path):
                self.handle_repository((match[2] or "") + match[3], match[4] or "", body)
            elif match := re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
                objects = [self.lfs_object(each) for each in json.loads(body)["objects"]]
                self.send_json({"transfer": "basic", "objects": objects})
            elif self.command == "PUT" and (match := re.fullmatch(r"/lfs/([0-9a-f]{64})", path)):
                self.store(match[1], body)
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
                self.send_file(*match.groups())
            else:
                self.send_json({"error": f"not found: {path}"}, 404)

        do_GET = do_POST = do_PUT = do_HEAD = handle_request  # noqa: N815 - names of http.server

        def create(self, requested: dict[str, Any]) -> None:
            prefix = "spaces/" if requested.get("type") == "space" else ""
            repo = f"{prefix}{requested.get('organization') or 'me'}/{requested['name']}"
            hub.files.setdefault(repo, {".gitattributes": b""} if prefix else {})
            hub.created.setdefault(repo, requested)
            if "hardware" in requested:
                hub.hardware.setdefault(repo, requested["hardware"])
            hub.private.setdefault(repo, requested.get("visibility") == "private" or requested.get("private", False))
            self.send_json({"url": f"{hub.address}/{repo}"})

        def lfs_object(self, requested: dict[str, Any]) -> dict[str, Any]:
            upload = {"href": f"{hub.address}/lfs/{requested['oid']}"}
            return requested | ({} if requested["oid"] in hub.stored else {"actions": {"upload": upload}})

        def store(self, oid: str, body: bytes) -> None:
            is_whole = hashlib.sha256(body).hexdigest() == oid
            if is_whole:
                hub.stored[oid] = body
            self.respond(200 if is_whole else 400)

        def handle_repository(self, repo: str, operation: str, body: bytes) -> None:
            if repo not in hub.files:
                self.respond(404, b"{}", X_Error_Code="RepoNotFound")
            elif operation == "preupload":
                files = json.loads(body)["files"]
                modes = {True: "lfs", False: "regular"}
                self.send_json(
                    {
                        "files": [
                            {
                                "path": file["path"],
                                "uploadMode": modes[
                                    repo.startswith("spaces/") and b"\0" in base64.b64decode(file["sample"])
                                ],
                                "shouldIgnore": False,
                            }
                            for file in files
                        ]
                    }
                )
            elif operation == "commit":
                if reason := hub.commit(repo, [json.loads(line) for line in body.splitlines()]):
                    self.send_json({"error": reason}, 400)
                    return
                address = f"{hub.address}/{repo}/commit/{COMMIT}"
                self.send_json({"success": True, "commitOid": COMMIT, "commitUrl": address, "hookOutput": ""})
            elif operation == "hardware":
                hub.hardware[repo] = json.loads(body)["flavor"]
                self.send_json({"stage": "BUILDING", "hardware": {"requested": hub.hardware[repo]}})
            elif operation == "tree":
                files = hub.files[repo].items()
                self.send_json(
                    [{"type": "file", "path": name, "size": len(data), "oid": COMMIT} for name, data in files]
                )
            else:
                siblings = [{"rfilename": name} for name in hub.files[repo]]
                self.send_json({"id": repo.removeprefix("spaces/"), "sha": hub.sha(repo), "siblings": siblings})

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
