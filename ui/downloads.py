"""Runs to take away, each as one file, for those who may see them."""

import tempfile
import threading
from pathlib import Path

from gradio.context import LocalContext
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from core.errors import LabError
from core.exports import export_run
from core.visitors import VisitorRuns

PATH = "download"
_AT_ONCE = threading.BoundedSemaphore(2)  # each holds a whole model


def download_route(runs: VisitorRuns) -> Route:
    """Return the route under which a run's best weights, with its preset, are handed out."""

    def download(request: Request) -> Response:
        LocalContext.request.set(request)  # in this call's own context: who asks
        name = request.path_params["name"]
        try:
            with _AT_ONCE, tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "run.safetensors"
                export_run(runs.folder(name), file)
                content = file.read_bytes()
        except LabError as error:
            return PlainTextResponse(str(error), status_code=404)
        headers = {
            "content-disposition": f'attachment; filename="{name}.safetensors"',
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        }
        return Response(content, media_type="application/octet-stream", headers=headers)

    return Route(f"/{PATH}/{{name}}", download, methods=["GET"])
