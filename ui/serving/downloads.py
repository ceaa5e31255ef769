"""The download route: a run's weights or its whole package as one file."""

import tempfile
import threading
from pathlib import Path
from urllib.parse import quote

from gradio.context import LocalContext
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from core.runs import RunError
from core.runs.export import export_package, export_weights
from core.server.access import VisitorRuns
from core.storage.errors import LabError

PATH = "download"
_EXPORTS = threading.BoundedSemaphore(2)  # each export holds a whole model in memory


def download_route(runs: VisitorRuns) -> Route:
    """Return the route ``/download/<run>``: the best weights with the preset; ``<run>.zip`` adds the model card."""

    def download(request: Request) -> Response:
        LocalContext.request.set(request)  # identifies the visitor in this thread
        requested = request.path_params["name"]
        is_package = requested.endswith(".zip")
        name, suffix = (requested.removesuffix(".zip"), "zip") if is_package else (requested, "safetensors")
        try:
            with _EXPORTS, tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / f"run.{suffix}"
                _write(runs, name, file)
                content = file.read_bytes()
            file_name = f"{runs[name].title}.{suffix}"  # a name may have a secret, and a title any character
        except LabError as error:
            return PlainTextResponse(str(error), status_code=404)
        headers = {
            "content-disposition": f"attachment; filename*=utf-8''{quote(file_name, safe='')}",
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        }
        return Response(content, media_type="application/octet-stream", headers=headers)

    return Route(f"/{PATH}/{{name}}", download, methods=["GET"])


def _write(runs: VisitorRuns, name: str, file: Path) -> None:
    """Write a run's file; RunError if it contains another visitor's pairs."""
    run = runs[name]
    if file.suffix != ".zip":
        export_weights(run.folder, file)
        return
    if run.folder.pairs.is_file() and not runs.is_mine(name):
        raise RunError(f"run={name!r} contains uploaded pairs, which only its owner may download")
    export_package(run.folder, file)
