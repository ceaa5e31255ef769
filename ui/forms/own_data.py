"""Your own pairs, on the Train tab: bring a file or paste lines, see what is in them, and learn them."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from core.config import Preset
from core.server.access import VisitorRuns
from core.storage.errors import InputError, LabError
from core.tasks.ingest import PairFiles, StagingArea
from core.text.tokenizers import TOKEN_KINDS
from ui.components.data_preview import data_preview, preview_of
from ui.events import CPU, QUIET
from ui.forms.preset_form import Draft, Form

MAX_PASTED = 200_000  # characters; more is a file
_ENDINGS = [".tsv", ".txt", ".csv", ".jsonl", ".ndjson"]
_HOW = (
    "A line a pair: *source*, a tab, *answer* (.tsv, .txt), two columns (.csv), or an object with `source` and "
    "`target` (.jsonl); or two files, of which line answers line. Text is UTF-8. A source may have several answers. "
    "A tenth of the sources is kept for the test, a tenth to choose the best weights; no source stands in two parts. "
    "The pairs are kept with the runs that you train on them, and nowhere else."
)


def build(runs: VisitorRuns, form: Form) -> gr.Accordion:
    """Build the panel; what it makes of the data opens in the form."""
    desk = StagingArea(max_pairs=runs.limits.max_pairs)
    with gr.Accordion("Your own pairs", open=False, elem_id="own-pairs") as panel:
        gr.Markdown(_HOW)
        file: dict[str, Any] = {"file_types": _ENDINGS, "type": "filepath", "height": 140, "min_width": 240}
        with gr.Row():
            pairs = gr.File(label="Pairs, or sources", elem_id="own-file", **file)
            targets = gr.File(label="Answers, if apart", elem_id="own-targets", **file)
            test = gr.File(label="Test pairs, if apart", elem_id="own-test", **file)
        pasted = gr.Textbox(
            label="Or paste pairs",
            info="a line each: source, a tab or =>, answer",
            lines=4,
            max_lines=8,
            elem_id="own-pasted",
        )
        with gr.Row():
            kinds = [
                gr.Radio(list(TOKEN_KINDS), value="character", label=label, info=info, elem_id=elem_id, min_width=280)
                for label, info, elem_id in (
                    ("A source's tokens are", "a symbol is what stands between spaces", "own-source-kind"),
                    ("An answer's tokens are", "so that P1 P2 P3 are three", "own-answer-kind"),
                )
            ]
        with gr.Row(elem_classes="actions"):
            look = gr.Button("Look at the data", variant="secondary", elem_id="own-look", min_width=160)
        preview, made = data_preview(), gr.State(None)
    given = [pairs, targets, test, pasted, *kinds]
    looked = look.click(partial(looked_at, runs, desk), given, [preview, made], **QUIET, **CPU)
    form.opens(looked.then, opened_draft, [made, form.draft])
    return panel


def looked_at(
    runs: VisitorRuns,
    desk: StagingArea,
    pairs: str | None,
    targets: str | None,
    test: str | None,
    pasted: str | None,
    source_kind: str,
    answer_kind: str,
) -> tuple[dict[str, Any], Preset | None]:
    """Take what was brought in; return what is shown of it, and the preset that learns it, or nothing."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            brought = _brought(Path(folder), pairs, targets, test, pasted or "")
            found, preset, held = desk.stage(brought, kinds=(source_kind, answer_kind))
            runs.register_upload(found.sha256, held)
    except LabError as error:
        return {"problem": str(error)}, None
    return preview_of(found), preset


def opened_draft(preset: Preset | None, draft: Draft) -> Draft | None:
    """Return a draft that opens with the preset of the data, if there is one."""
    return None if preset is None else draft.next(preset, base=preset)


def _brought(folder: Path, pairs: str | None, targets: str | None, test: str | None, pasted: str) -> PairFiles:
    """Return the files that were brought, what was pasted among them; InputError if that is nothing, or both."""
    if pairs and pasted.strip():
        raise InputError("there are a file and pasted pairs; take one of them away")
    if len(pasted) > MAX_PASTED:
        raise InputError(f"the pasted pairs have {len(pasted):,} characters, more than {MAX_PASTED:,}; bring a file")
    if pasted.strip():
        path = folder / "pasted.tsv"
        path.write_text("\n".join(_with_tab(line) for line in pasted.splitlines()) + "\n", encoding="utf-8")
        return PairFiles(path, test=_path(test))
    if not pairs:
        raise InputError("no data yet: bring a file, or paste pairs")
    return PairFiles(Path(pairs), _path(targets), _path(test))


def _with_tab(line: str) -> str:
    source, arrow, answer = line.partition("=>")
    return f"{source.strip()}\t{answer.strip()}" if arrow and "\t" not in line else line


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
