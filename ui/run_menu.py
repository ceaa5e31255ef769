"""Under the bar: what can be done with the current run as a whole: take it away, share it, delete it."""

from collections import Counter
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.runs import ACTIVE
from core.server.access import VisitorRuns, without_secret
from ui.components import ServerFunction, run_menu
from ui.downloads import PATH
from ui.views import run_list

NOTHING: dict[str, Any] = {"run": None}


class MenuRequest(BaseModel):
    """What a browser asks to be done with a run; anybody may ask, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str = Field(max_length=100)
    shared: bool = False


def build(runs: VisitorRuns) -> Any:
    """Build the menu; the page tells it which run is the current one, and is told when that is deleted."""
    return run_menu(_answering(partial(share, runs)), _answering(partial(delete, runs)))


def listed(runs: VisitorRuns) -> dict[str, Any]:
    """Return the runs for the bar, with short names and whether they are shared."""
    told = run_list(runs)["runs"]
    count = Counter(without_secret(each["id"]) for each in told)
    for each in told:
        short = without_secret(each["id"])
        each["label"] = short if count[short] == 1 else each["id"][: len(short) + 5]
        each["shared"] = runs.has_visitors and runs.is_shared(each["id"])
    return {"runs": told}


def shown(runs: VisitorRuns, run: str | None) -> dict[str, Any]:
    """Return what can be done with a run."""
    if run is None:
        return NOTHING
    mine, info = runs.is_mine(run) and not runs.info(run).shipped, runs.info(run)
    has_file = runs.has_weights(run) and info.status not in ACTIVE
    is_own = bool(runs.preset(run).task.own_data)
    return {
        "run": run,
        "label": without_secret(run),
        "file": f"{PATH}/{run}" if has_file and not is_own else None,
        "package": f"{PATH}/{run}.zip" if has_file and (mine or not is_own) else None,
        "shared": runs.is_shared(run) if mine and runs.has_visitors else None,
        "deletable": mine and info.status not in ACTIVE,
    }


def share(runs: VisitorRuns, request: MenuRequest) -> dict[str, Any]:
    """Let others look at a run, or no more; return what can be done with it then."""
    runs.share(request.run, request.shared)
    return shown(runs, request.run)


def delete(runs: VisitorRuns, request: MenuRequest) -> dict[str, Any]:
    """Delete a run."""
    runs.delete(request.run)
    return NOTHING


def _answering(function: Any) -> ServerFunction:
    def call(request: dict[str, Any]) -> dict[str, Any]:
        try:
            return function(MenuRequest.model_validate(request))
        except ValidationError as error:
            return {"error": f"cannot answer this: {error.errors()[0]['msg']}"}

    return call
