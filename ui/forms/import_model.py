"""The form that makes a run of another program's model: a path on this computer, read by the server itself.

It exists only on a server that nothing but this computer can reach; see ``ui.serving.host_check``. Uploading a
folder of 300 MB through the browser would copy it twice, and leave out the files that a mapping names.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import gradio as gr

from core.runs.hugging_face import NAMES
from core.runs.imported_tokens import Languages
from core.runs.model_files import read_state_dict
from core.runs.torch_transformer import draft_mapping, parse_mapping
from core.server.access import VisitorRuns
from core.server.limits import MEGABYTE
from core.storage.error_messages import short_repr
from core.storage.errors import InputError, LabError
from core.tasks.ingest import format_of
from core.text.validation import validate_text
from ui.components.notice import notice, problem
from ui.components.run_bar import current_run
from ui.events import QUIET
from ui.serving.guarded_page import message_for
from ui.updates import Updates, each_by_name

STATE_DICTS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")
MAX_PATH = 4_096  # characters
MAX_MAPPING = 65_536
OPEN = """() => {
  document.body.dataset.side = "model";
  const focus = (frames) => {
    const field = document.querySelector("#model-path :is(input, textarea)");
    if (field) field.focus();
    else if (frames) requestAnimationFrame(() => focus(frames - 1)); // the form is built now
  };
  focus(100);
  return { __type__: "update", visible: true };
}"""
_PROGRESS_SECONDS = 0.5
_CLOSE = "() => { document.body.dataset.side = ''; }"
_INSTRUCTIONS = (
    "A **folder** of a model in Hugging Face's format ("
    + ", ".join(NAMES)
    + "): `config.json`, `model.safetensors` and, for "
    "text, the tokenizer's files. Or a **file** with the state dict of a model built on `nn.Transformer`, whose "
    "mapping you can correct here. The server reads it where it is; nothing is uploaded; only tensors are unpickled."
)
Work = Callable[[Callable[[str], None]], Any]
"""What a job does; it calls its argument with the name of each phase before the phase begins."""

_log = logging.getLogger(__name__)


def build(runs: VisitorRuns, run: gr.State, bar: gr.HTML) -> None:
    """Build the form; the imported run becomes the current one.

    Args:
        run: receives the name of the imported run.
        bar: the run bar, which shows the imported run.
    """
    with gr.Row(elem_classes="actions"):
        gr.Markdown("### Import a model")
        close = gr.Button("Back to the charts", size="sm", scale=0, min_width=140, elem_id="model-close")
    gr.Markdown(_INSTRUCTIONS)
    path = gr.Textbox(
        label="Folder or file",
        info="a path on the computer that serves this page",
        placeholder="~/models/opus-mt-en-de",
        max_lines=1,
        elem_id="model-path",
    )
    pairs = gr.Textbox(
        label="Pairs to measure it on (optional)",
        info="a path: .tsv, .csv or .jsonl. Without pairs the model decodes and shows its attention, unmeasured",
        placeholder="~/data/test.tsv",
        max_lines=1,
        elem_id="model-pairs",
    )
    languages = gr.Textbox(
        label="Languages (optional)",
        info="of sources and of answers, for mBART, M2M-100 and NLLB; by default those of the tokenizer",
        placeholder="en_XX de_DE",
        max_lines=1,
        elem_id="model-languages",
    )
    with gr.Row(elem_classes="actions"):
        start = gr.Button("Import", variant="primary", elem_id="model-start", min_width=120)
        stop = gr.Button("Stop", visible=False, elem_id="model-stop", min_width=60)
    message = notice(elem_id="model-message")
    mapping = gr.Textbox(
        label="Mapping",
        info="which tensors are which, as YAML; for a state dict only",
        lines=14,
        max_lines=28,
        visible=False,
        elem_id="model-mapping",
    )
    proposed_for = gr.State("")  # the path whose mapping is shown, as it was typed
    latest = [threading.Event()]  # stops the latest import; pages import one model at a time

    def begin(path: str, pairs: str, mapping: str | None, proposed_for: str, languages: str) -> Iterator[Updates]:
        latest[0] = stopping = threading.Event()  # of its own: an import goes on when its page is closed
        text = mapping if mapping and path == proposed_for else ""  # that of another file means nothing
        yield from import_steps(runs, stopping, path, pairs, text, languages)

    outputs = {
        "run": run,
        "bar": bar,
        "message": message,
        "mapping": mapping,
        "proposed_for": proposed_for,
        "start": start,
        "stop": stop,
    }
    event: dict[str, Any] = {
        "fn": each_by_name(begin, outputs),
        "inputs": [path, pairs, mapping, proposed_for, languages],
        "outputs": list(outputs.values()),
        "concurrency_limit": 1,
        "trigger_mode": "once",
        **QUIET,
    }
    gr.on([start.click, path.submit, pairs.submit, languages.submit], **event)
    stop.click(lambda: latest[0].set(), None, None, concurrency_limit=None, **QUIET)
    close.click(None, None, None, js=_CLOSE, api_visibility="private")


def import_steps(
    runs: VisitorRuns, stopping: threading.Event, path: str, pairs: str, mapping: str, languages: str = ""
) -> Iterator[Updates]:
    """Import a model, or first propose the mapping of a state dict.

    Args:
        stopping: ends the import before its next phase.
        path: of a folder or file, as typed.
        pairs: path of a file, as typed; may be empty.
        mapping: YAML; empty for a folder, or to propose one.
        languages: of sources and of answers, as typed; may be empty.

    Yields:
        The updates of the run, the message, the mapping, the path that it was proposed for, and of the buttons.
    """
    idle: Updates = {"start": gr.update(interactive=True), "stop": gr.update(visible=False)}
    busy: Updates = {"start": gr.update(interactive=False), "stop": gr.update(visible=True)}
    try:
        source, pairs_file, chosen = model_path(path), _pairs_path(pairs), _languages(languages)
        is_proposal = not source.is_dir() and not mapping.strip()
        if is_proposal:
            job = _Job(lambda on_phase: _draft(source, on_phase), stopping)
        else:
            text = None if source.is_dir() else _checked_mapping(mapping)
            job = _Job(
                lambda on_phase: runs.import_model(
                    source, pairs=pairs_file, mapping=text, languages=chosen, on_phase=on_phase
                ),
                stopping,
            )
        name = f"{source.name}, {_megabytes(source)}"
        for phase in job.phases():
            yield busy | {"message": {"text": f"{name}: {phase}"}}
        result = job.future.result()
    except LabError as error:
        yield idle | {"message": problem(error)}
        return
    except Exception as error:  # noqa: BLE001 - logged; the buttons must be usable again
        _log.exception("importing a model failed")
        yield idle | {"message": problem(message_for(error))}
        return
    if is_proposal:
        draft, uncertain = result
        shown = {"text": f"Check the mapping, then press Import again: {uncertain}."}
        yield idle | {"message": shown, "mapping": gr.update(value=draft, visible=True), "proposed_for": path}
    else:  # the bar says what was imported
        no_mapping = {"mapping": gr.update(value="", visible=False), "proposed_for": ""}
        yield idle | no_mapping | current_run(result) | {"message": {"text": ""}}


class _Job(threading.Thread):
    """Does the work in a thread of its own, so that its phases can be shown; it ends even if the page is closed."""

    def __init__(self, work: Work, stopping: threading.Event) -> None:
        super().__init__(name="import-model", daemon=True)
        self.future: Future = Future()
        self._work, self._stopping, self._phase = work, stopping, "waiting"

    def phases(self) -> Iterator[str]:
        """Start the job; yield its phase and the seconds so far, again and again, until it ends."""
        self.start()
        started = time.monotonic()
        while not self.future.done():
            stopping = "; stopping after this" if self._stopping.is_set() else ""
            yield f"{self._phase} … {time.monotonic() - started:.0f} s{stopping}"
            wait([self.future], timeout=_PROGRESS_SECONDS)

    def run(self) -> None:
        """Do the work."""
        try:
            self.future.set_result(self._work(self._on_phase))
        except BaseException as error:  # noqa: BLE001 - raised again by ``future.result()``
            self.future.set_exception(error)

    def _on_phase(self, phase: str) -> None:
        if self._stopping.is_set():
            raise InputError("stopped; nothing was imported")
        self._phase = phase


def model_path(text: str) -> Path:
    """Return the path of a folder or of a file of weights that a user typed; InputError if there is none there."""
    path = _path("path", text)
    if path is None:
        raise InputError("path is empty: name the folder of a model in Hugging Face's format, or a state dict's file")
    if os.path.isdir(path):
        if (path / "run.json").is_file():
            raise InputError(
                f"path={text.strip()!r} is a run of Attention Lab: use “Import a run” for its zip or weights"
            )
        if not (path / "config.json").is_file():
            raise InputError(f"path={text.strip()!r}: the folder has no config.json, which a model's folder has")
        return path
    if path.suffix.lower() not in STATE_DICTS:
        raise InputError(f"path={text.strip()!r} must be a folder, or a file that ends with {', '.join(STATE_DICTS)}")
    return path


def _pairs_path(text: str) -> Path | None:
    path = _path("pairs", text)
    if path is not None:
        format_of(path)  # raises if it is of another format
        if not os.path.isfile(path):
            raise InputError(f"pairs={text.strip()!r} is not a file")
    return path


def _languages(text: str) -> Languages:
    """Return the languages that a user typed: none, or that of sources and that of answers."""
    typed = validate_text("languages", text or "", max_length=MAX_PATH).split()
    if len(typed) not in (0, 2):
        raise InputError(
            f"languages={short_repr(text.strip())} must be two, of sources and of answers, such as en_XX de_DE"
        )
    return (typed[0], typed[1]) if typed else (None, None)


def _path(field: str, text: str) -> Path | None:
    """Return what a typed path stands for, None if it is empty; InputError if there is nothing."""
    typed = validate_text(field, text or "", max_length=MAX_PATH).strip()
    if not typed:
        return None
    if typed[0] == typed[-1] and typed[0] in "'\"" and len(typed) > 1:  # as a terminal or file manager copies it
        typed = typed[1:-1]
    path = Path(os.path.expanduser(typed))
    if not os.path.exists(path):
        raise InputError(f"{field}={typed!r}: there is no such file or folder on the computer that serves this page")
    return path


def _checked_mapping(text: str) -> str:
    """Return a mapping; LabError if it is not valid, or names files of tokens in other folders than the weights'."""
    mapping = parse_mapping(validate_text("mapping", text, max_length=MAX_MAPPING))
    for field in ("source_tokens", "target_tokens"):
        name = getattr(mapping, field)
        if name and Path(name).name != name:
            raise InputError(f"{field}={name!r} must be the name of a file beside the weights, without a folder")
    return text


def _draft(source: Path, on_phase: Callable[[str], None]) -> tuple[str, str]:
    on_phase("reading the weights")
    return draft_mapping(read_state_dict(source))


def _megabytes(source: Path) -> str:
    """Return the size of a file, or of the files in a folder."""
    files = [source] if source.is_file() else [each for each in source.iterdir() if each.is_file()]
    return f"{sum(each.stat().st_size for each in files) / MEGABYTE:,.1f} MB"
