"""Runs to take away, each as one file, for those who may see them."""

import tempfile
import threading
from pathlib import Path

from gradio.context import LocalContext
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from core.runs import RunError
from core.runs.export import export_package, export_weights
from core.server.access import VisitorRuns
from core.storage.errors import LabError

PATH = "download"
_AT_ONCE = threading.BoundedSemaphore(2)  # each holds a whole model


def download_route(runs: VisitorRuns) -> Route:
    """Return the route under which a run's best weights, with its preset, are handed out, or with .zip all there is."""

    def download(request: Request) -> Response:
        LocalContext.request.set(request)  # in this call's own context: who asks
        asked = request.path_params["name"]
        name, ending = (asked.removesuffix(".zip"), "zip") if asked.endswith(".zip") else (asked, "safetensors")
        try:
            with _AT_ONCE, tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / f"run.{ending}"
                _write(runs, name, file)
                content = file.read_bytes()
        except LabError as error:
            return PlainTextResponse(str(error), status_code=404)
        headers = {
            "content-disposition": f'attachment; filename="{name}.{ending}"',
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        }
        return Response(content, media_type="application/octet-stream", headers=headers)

    return Route(f"/{PATH}/{{name}}", download, methods=["GET"])


def _write(runs: VisitorRuns, name: str, file: Path) -> None:
    """Write a run's file; RunError where the pairs in it are somebody else's."""
    folder = runs.folder(name)
    if file.suffix != ".zip":
        export_weights(folder, file)
        return
    if folder.preset().task.own_data and not runs.is_mine(name):
        raise RunError(f"run={name!r} learned pairs that only who brought them may take away")
    export_package(folder, file)
