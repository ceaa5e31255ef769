"""A visitor as raw HTTP requests with cookies, without the checks that the page makes."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx

from ui.serving.guarded_page import INTERNAL_ERROR

Answer = dict[str, Any]  # "status" of the request; "event" and "data" of the result


def reports_a_bug(text: str) -> bool:
    """Whether a response contains a message that the program shows only for a bug of its own."""
    return INTERNAL_ERROR.partition(".")[0] in text or "This is a bug" in text


class Session:
    """One visitor of the served page."""

    def __init__(self, address: str) -> None:
        self.http = httpx.Client(base_url=address, timeout=60, follow_redirects=True)
        self.http.get("/")
        self.config = self.http.get("/config").json()
        self.hash = secrets.token_hex(6)

    def close(self) -> None:
        """End the connection."""
        self.http.close()

    def endpoints(self) -> dict[str, list[dict[str, Any]]]:
        """Return the public endpoints, each with its parameters."""
        info = self.http.get("/gradio_api/info").json()["named_endpoints"]
        return {name.strip("/"): endpoint["parameters"] for name, endpoint in info.items()}

    def call(self, endpoint: str, *data: Any) -> Answer:
        """Call a public endpoint; the body is ASCII, so that lone surrogates can be sent too."""
        body = json.dumps({"data": list(data)})
        posted = self.http.post(
            f"/gradio_api/call/{endpoint}", content=body, headers={"content-type": "application/json"}
        )
        if posted.status_code != 200:
            return {"status": posted.status_code, "event": "refused", "data": posted.text}
        event = posted.json()["event_id"]
        result = {"event": None, "data": None}
        with self.http.stream("GET", f"/gradio_api/call/{endpoint}/{event}") as stream:
            for line in stream.iter_lines():
                field, _, value = line.partition(": ")
                if field in result and not (field == "event" and value == "heartbeat"):
                    result[field] = value if field == "event" else json.loads(value)
        return {"status": 200} | result

    def trigger(self, event: int, data: list[Any], *, event_data: Any = None, query: str = "") -> list[Answer]:
        """Trigger one of the page's events by its index; return all messages of the event stream."""
        body = {"data": data, "fn_index": event, "session_hash": self.hash, "event_data": event_data}
        posted = self.http.post(f"/gradio_api/queue/join{query}", json=body)
        if posted.status_code != 200:
            return [{"status": posted.status_code, "data": posted.text}]
        return list(self._messages(posted.json()["event_id"]))

    def _messages(self, event: str) -> Iterator[Answer]:
        with self.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": self.hash}) as stream:
            for line in stream.iter_lines():
                if not line.startswith("data: "):
                    continue
                message = json.loads(line.removeprefix("data: "))
                yield message
                if message.get("msg") == "process_completed" and message.get("event_id") == event:
                    return
                if message.get("msg") == "close_stream":
                    return

    def server_functions(self) -> list[tuple[int, str]]:
        """Return the server functions of all components: (component id, name)."""
        return [
            (component["id"], name)
            for component in self.config["components"]
            for name in component["props"].get("server_fns", [])
        ]

    def call_component(self, component: int, function: str, argument: Any) -> httpx.Response:
        """Call a component's server function."""
        body = {"component_id": component, "fn_name": function, "data": argument, "session_hash": self.hash}
        as_json = {"content-type": "application/json"}
        return self.http.post("/gradio_api/component_server/", content=json.dumps(body), headers=as_json)

    def upload(self, content: bytes, name: str = "run.safetensors") -> httpx.Response:
        """Upload a file."""
        return self.http.post("/gradio_api/upload", files={"files": (name, content)})
