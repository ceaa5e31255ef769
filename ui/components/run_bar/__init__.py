"""The bar at the top: the current run, its progress, Stop and Resume, and the menu of all runs."""

from functools import partial
from typing import Any, Literal

import gradio as gr
from gradio.context import Context
from pydantic import Field

from core.interpret.health import head_marks
from core.interpret.snapshots import PackedMaps, Snapshot, SnapshotInput, SnapshotOutput
from core.models.seq2seq import Block
from core.runs import ACTIVE, RunError
from core.server.access import VisitorRuns
from core.text.vocab import BOS, EOS
from ui.attention_blocks import BLOCK_NAMES, columns_of_maps, source_block
from ui.components.attention_viewer import encoded
from ui.components.class_board import class_functions, nickname_of
from ui.components.component import MetricsRequest, Request, RunRequest, SearchRequest, component, validated
from ui.run_info import RESUMABLE, STOPPABLE, list_runs, progress_since
from ui.serving.downloads import PATH
from ui.serving.errors import in_words
from ui.subword_texts import sentences, words_of, words_of_steps

MIN_HEADS = 4  # with fewer heads in the block that attends to the source, the bench shows all blocks


class FeedRequest(MetricsRequest):
    """A request for what has changed since the steps that the browser has."""

    since_snapshot: int = Field(default=-1, ge=-1)
    known_snapshots: int = Field(default=0, ge=0)
    block: Literal["", "all", "cross", "decoder", "encoder"] = ""
    input: int = Field(default=0, ge=0)


class SnapshotRequest(RunRequest):
    """A request for one attention snapshot."""

    step: int = Field(ge=0)
    block: Literal["", "all", "cross", "decoder", "encoder"] = ""
    input: int = Field(default=0, ge=0)


class ListRequest(SearchRequest):
    """A request for the runs of the menu."""

    task: str = Field(default="", max_length=500)


class RenameRequest(RunRequest):
    """A request to give a run another title; an empty one restores the default."""

    title: str = Field(max_length=200)


class ShareRequest(RunRequest):
    """A request to share a run or to stop sharing it."""

    shared: bool


def run_bar(runs: VisitorRuns) -> gr.HTML:
    """Build the component.

    Value: ``{"current": name or None}``, optionally with ``"missing"``, a run that a link names and that is not there,
    and ``"why"``, in words other than the page's; ``"unread"``, see ``problems_of_link``; ``"used"``,
    parameters that a reload must not read again; ``"loading"``, true while the page does not know its run yet;
    ``"started"``, true if the form has started it; and ``"translator"``, see ``shipped_translator``.

    Events: ``.pick(fn)`` with ``evt.run``, "" for none; ``.status(fn)`` with ``evt.run, evt.status`` when the status of
    the current run changes; ``.weights(fn)`` when the run that trains has new weights; ``.gone(fn)`` after the run was
    deleted, or the class ended whose teacher saw it.
    """
    page = Context.root_block
    server = {"app_id": None if page is None else page.app_id}  # another one after a restart
    functions = {
        "still_open": validated(Request, lambda _: {}),  # the request itself is what counts
        "feed": validated(FeedRequest, lambda request: feed(runs, request) | server),
        "snapshot": validated(SnapshotRequest, partial(snapshot, runs)),
        "list_runs": validated(ListRequest, lambda request: list_runs(runs, request.search, request.task)),
        "actions": validated(RunRequest, partial(actions, runs)),
        "stop": validated(RunRequest, partial(stop, runs)),
        "resume": validated(RunRequest, partial(resume, runs)),
        "rename": validated(RenameRequest, partial(rename, runs)),
        "share": validated(ShareRequest, partial(share, runs)),
        "delete": validated(RunRequest, partial(delete, runs)),
        **class_functions(runs),
    }
    return component(
        "run_bar",
        elem_id="run-bar",
        value={"current": None, "loading": True},  # until the page has its first run, or knows that there is none
        events=["pick", "status", "weights", "gone"],
        server_functions=functions,
    )


def current_run(run: str | None, **about: Any) -> dict[str, Any]:
    """Return the updates of the page's run and of its bar that make a run the current one, or None for no run.

    Both come with one answer. If the bar's came later, with those of the tabs, it could bring back a former run.

    Args:
        about: further keys of the bar's value.
    """
    return {"run": run, "bar": {"current": run} | about}


# ---- the feed


def feed(runs: VisitorRuns, request: FeedRequest) -> dict[str, Any]:
    """Return the state of a run, with the metrics and snapshots that the browser does not have yet.

    If there is no such run, the answer is why it may be ``gone``, and the ``error`` of the other functions.
    """
    try:
        run = runs[request.run]
    except RunError as error:
        gone = "was deleted, or is not shared with you any more" if runs.has_visitors else "was deleted"
        return {"gone": gone, "error": in_words(error)}
    progress, info, task = progress_since(run, **request.held), run.info, run.preset.task
    mine = runs.is_mine(request.run) and not info.shipped
    about = {
        "task": task.summary,
        "watched": run.preset.is_watched,
        "without_bleu": info.without_bleu,
        "overfitting": run.history.overfitting(info.best_step),
        "shipped": info.shipped,
        "preset": run.preset.name,
        "student": "" if mine or info.shipped else nickname_of(runs, request.run),
        "trained_here": mine and info.status == "finished" and info.step > 0 and run.has_weights,
        "stoppable": mine and info.status in STOPPABLE and not run.preset.is_watched,
        "resumable": mine and info.status in RESUMABLE and not run.preset.is_watched,
    }
    snapshots = _new_snapshots(run.replay.snapshots(), request, task.has_subwords)
    return progress | about | {"snapshots": snapshots}


def shipped_translator(runs: VisitorRuns) -> str | None:
    """Return the name of a shipped run that translates, which the page offers whatever run is open."""
    for name in reversed(list(runs)):  # shipped ones last
        run = runs[name]
        if not run.info.shipped:
            return None
        if run.preset.task.has_subwords:
            return name
    return None


def _new_snapshots(snapshots: list[Snapshot], request: FeedRequest, subwords: bool) -> dict[str, Any]:
    """Return the steps of all snapshots, the scores of those the browser may lack, and the latest one if it is new."""
    known = request.since_snapshot if request.known_snapshots else -1
    is_new = bool(snapshots) and snapshots[-1].step > known
    return {
        "steps": [each.step for each in snapshots],
        "masses": [[each.step, each.attention_mass] for each in snapshots if each.step > known and each.attention_mass],
        "latest": snapshot_value(snapshots[-1], block=request.block, shown_input=request.input, subwords=subwords)
        if is_new
        else None,
    }


def snapshot(runs: VisitorRuns, request: SnapshotRequest) -> dict[str, Any]:
    """Return the snapshot of a training step.

    Raises:
        RunError: there is none of that step.
    """
    run = runs[request.run]
    for each in run.replay.snapshots():
        if each.step == request.step:
            subwords = run.preset.task.has_subwords
            return snapshot_value(each, block=request.block, shown_input=request.input, subwords=subwords)
    raise RunError(f"step={request.step}: run {request.run!r} has no snapshot of this step")


def snapshot_value(
    snapshot: Snapshot, *, block: str = "", shown_input: int = 0, subwords: bool = False
) -> dict[str, Any]:
    """Return a snapshot as plain data: the answers to all inputs, and the maps of one input.

    Args:
        block: the attention block whose maps to return, or "all"; "" chooses the one that attends to the source, or
            all if it has only a few heads.
        shown_input: index of the input whose maps to return.
        subwords: whether the tokens are subwords; each answer then has its ``texts`` too.
    """
    if not snapshot.outputs:
        return {"step": snapshot.step, "answers": [], "blocks": [], "maps": {}, "attention_mass": None}
    index = min(shown_input, len(snapshot.outputs) - 1)
    maps = snapshot.outputs[index].maps
    blocks, columns = [each for each in BLOCK_NAMES if each in maps], columns_of_maps(snapshot.outputs[index])
    return {
        "step": snapshot.step,
        "answers": [
            _answer(each, output, subwords=subwords)
            for each, output in zip(snapshot.inputs, snapshot.outputs, strict=True)
        ],
        "input": index,
        "source": list(snapshot.inputs[index].source),
        "read": list(snapshot.outputs[index].read),
        "blocks": [
            {
                "block": each,
                "name": BLOCK_NAMES[each],
                "layers": maps[each].shape[0],
                "columns": columns[each],
            }
            for each in blocks
        ],
        "words": _words(snapshot.inputs[index], snapshot.outputs[index]) if subwords else None,
        "maps": {each: encoded(maps[each]) for each in _shown_blocks(maps, block)},
        "scored_block": source_block(blocks) if snapshot.attention_mass else None,
        "marks": head_marks(snapshot.health.heads) if snapshot.health else {},
        "attention_mass": snapshot.attention_mass,
        "uniform_mass": snapshot.uniform_mass,
        "num_scored": snapshot.num_scored,
    }


def _answer(given: SnapshotInput, output: SnapshotOutput, *, subwords: bool) -> dict[str, Any]:
    answer = {
        "source": list(given.symbols),
        "expected": list(given.answer) or None,
        "tokens": list(output.tokens),
    }
    if not subwords:
        return answer
    texts = sentences(source=given.symbols, output=output.tokens, expected=given.expected or None)
    return answer | {"texts": texts}


def _words(given: SnapshotInput, output: SnapshotOutput) -> dict[str, Any]:
    """Return the words that the pieces of an input and of its output make."""
    return {"source": words_of([BOS, *given.symbols, EOS]), **words_of_steps(output.tokens)}


def _shown_blocks(maps: dict[Block, PackedMaps], block: str) -> list[Block]:
    blocks = [each for each in BLOCK_NAMES if each in maps]
    if block in maps or not maps:
        return [each for each in blocks if each == block]
    layers, heads = maps[source_block(blocks)].shape[:2]
    return blocks if block == "all" or layers * heads < MIN_HEADS else [source_block(blocks)]


# ---- the menu of runs


def actions(runs: VisitorRuns, request: RunRequest) -> dict[str, Any]:
    """Return what the visitor can do with a run."""
    run = runs[request.run]
    info = run.info
    mine = runs.is_mine(run.name) and not info.shipped
    has_file = run.has_weights and info.status not in ACTIVE
    has_own_data = run.folder.pairs.is_file()
    return {
        "run": run.name,
        "title": run.title,
        "file": f"{PATH}/{run.name}" if has_file and not has_own_data else None,
        "package": f"{PATH}/{run.name}.zip" if has_file and (mine or not has_own_data) else None,
        "shared": runs.is_shared(run.name) if mine and runs.has_visitors else None,
        "renamable": mine,
        "deletable": mine and info.status not in ACTIVE,
    }


def stop(runs: VisitorRuns, request: RunRequest) -> dict[str, Any]:
    """Stop a run after its current step."""
    runs.stop(request.run)
    return {"run": request.run}


def resume(runs: VisitorRuns, request: RunRequest) -> dict[str, Any]:
    """Continue a stopped run."""
    runs.resume(request.run)
    return {"run": request.run}


def rename(runs: VisitorRuns, request: RenameRequest) -> dict[str, Any]:
    """Give a run another title; return its actions."""
    runs.rename(request.run, request.title)
    return actions(runs, request)


def share(runs: VisitorRuns, request: ShareRequest) -> dict[str, Any]:
    """Share a run or stop sharing it; return its actions."""
    runs.share(request.run, request.shared)
    return actions(runs, request)


def delete(runs: VisitorRuns, request: RunRequest) -> dict[str, Any]:
    """Delete a run."""
    runs.delete(request.run)
    return {"run": None}
