"""The form for the user's own pairs: upload or paste them, check them, and open a preset that trains on them."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from core.config import Preset
from core.server.access import VisitorRuns
from core.storage.errors import InputError, LabError
from core.tasks.ingest import PairFiles, StagingArea
from core.text.tokenizers import TOKEN_KINDS, TokenKind
from ui.components.data_preview import data_preview, preview_value
from ui.events import CPU, QUIET
from ui.forms.preset_form import Draft, Form

MAX_PASTED = 200_000  # characters
_SUFFIXES = [".tsv", ".txt", ".csv", ".jsonl", ".ndjson"]
_INSTRUCTIONS = (
    "One pair per line: *source*, a tab, *target* (.tsv, .txt), two columns (.csv), or an object with `source` and "
    "`target` (.jsonl); or two files with one line per pair each. Text is UTF-8. A source may have several targets. "
    "A tenth of the sources is held out for testing and a tenth for validation; no source is in two splits. "
    "The pairs are saved only with the runs that you train on them."
)


def build(runs: VisitorRuns, form: Form) -> None:
    """Build the form; the preset made for the pairs opens in the preset form."""
    staging = StagingArea(max_pairs=runs.limits.max_pairs)
    with gr.Row(elem_classes="actions"):
        gr.Markdown("### Your own pairs")
        close = gr.Button("Back to the charts", size="sm", scale=0, min_width=140, elem_id="own-close")
    gr.Markdown(_INSTRUCTIONS)
    file: dict[str, Any] = {"file_types": _SUFFIXES, "type": "filepath", "height": 140, "min_width": 240}
    with gr.Row():
        pairs = gr.File(label="Pairs, or source file", elem_id="own-file", **file)
        targets = gr.File(label="Target file (optional)", elem_id="own-targets", **file)
        test = gr.File(label="Test pairs (optional)", elem_id="own-test", **file)
    pasted = gr.Textbox(
        label="Or paste pairs",
        info="one per line: source, a tab or =>, target",
        lines=4,
        max_lines=8,
        elem_id="own-pasted",
    )
    with gr.Row():
        kinds = [
            gr.Radio(list(TOKEN_KINDS), value="character", label=label, info=info, elem_id=elem_id, min_width=280)
            for label, info, elem_id in (
                ("Source tokens", "symbol: split at spaces", "own-source-kind"),
                ("Target tokens", "symbol: P1 P2 P3 are three tokens", "own-answer-kind"),
            )
        ]
    with gr.Row(elem_classes="actions"):
        check = gr.Button("Check the data", variant="secondary", elem_id="own-look", min_width=160)
    preview, preset = data_preview(), gr.State(None)
    inputs = [pairs, targets, test, pasted, *kinds]
    checked = check.click(partial(check_pairs, runs, staging), inputs, [preview, preset], **QUIET, **CPU)
    form.open_on(checked.then, draft_for, [preset, form.draft])
    close.click(None, None, None, js="() => { document.body.dataset.side = ''; }", api_visibility="private")


def check_pairs(
    runs: VisitorRuns,
    staging: StagingArea,
    pairs: str | None,
    targets: str | None,
    test: str | None,
    pasted: str | None,
    source_kind: TokenKind,
    target_kind: TokenKind,
) -> tuple[dict[str, Any], Preset | None]:
    """Ingest pairs; return their preview and a preset that trains on them, or an error and None."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            files = _files(Path(folder), pairs, targets, test, pasted or "")
            found, preset, held = staging.stage(files, kinds=(source_kind, target_kind))
            runs.register_upload(found.sha256, held)
    except LabError as error:
        return {"problem": str(error)}, None
    return preview_value(found), preset


def draft_for(preset: Preset | None, draft: Draft) -> Draft | None:
    """Return a draft that opens with the preset of the pairs, if there is one."""
    return None if preset is None else draft.next(preset, base=preset)


def _files(folder: Path, pairs: str | None, targets: str | None, test: str | None, pasted: str) -> PairFiles:
    """Return the uploaded files, with pasted pairs written to one; InputError if there is no data or both."""
    if pairs and pasted.strip():
        raise InputError("there are both a file and pasted pairs; remove one of them")
    if len(pasted) > MAX_PASTED:
        raise InputError(f"the pasted pairs have {len(pasted):,} characters, more than {MAX_PASTED:,}; upload a file")
    if pasted.strip():
        path = folder / "pasted-pairs.tsv"  # the preset is named after it
        path.write_text("\n".join(_with_tab(line) for line in pasted.splitlines()) + "\n", encoding="utf-8")
        return PairFiles(path, test=_path(test))
    if not pairs:
        raise InputError("no data yet: upload a file or paste pairs")
    return PairFiles(Path(pairs), _path(targets), _path(test))


def _with_tab(line: str) -> str:
    source, arrow, target = line.partition("=>")
    return f"{source.strip()}\t{target.strip()}" if arrow and "\t" not in line else line


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
