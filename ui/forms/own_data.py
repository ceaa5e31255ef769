"""The form for the user's own pairs: upload or paste them, check them, and open a preset that trains on them."""

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.config import Preset
from core.reports.formatting import duration_range
from core.server.access import VisitorRuns
from core.storage.error_messages import short_repr, shortened
from core.storage.errors import InputError, LabError
from core.tasks.ingest import (
    HeldOutFile,
    Kinds,
    PairFiles,
    StagingArea,
    UnknownFormatError,
    format_of,
    is_json,
    parse_columns,
    reading_of,
    set_name,
)
from core.text.tokenizers import TOKEN_KINDS
from ui.components.data_preview import data_preview, preview_value, with_time
from ui.events import CHECK, LATEST, PRESSED, QUIET, event_text
from ui.forms.preset_form import LONGEST_WAIT, Draft, Form
from ui.updates import Updates, by_name

AUTOMATIC = "automatic"
OPEN = """() => {
  document.body.dataset.side = "own";
  const show = (frames) => { // it is beside the settings, or below them
    const form = document.querySelector("#own-data");
    if (form?.offsetHeight) form.scrollIntoView();
    else if (frames) requestAnimationFrame(() => show(frames - 1)); // the form is built now
  };
  show(100);
  return { __type__: "update", visible: true };
}"""
WITH_EDITS = """(preview, ...given) => {
  const edits = Number(document.body.dataset.pairEdits ?? 0);
  const isBeingChecked = document.querySelector("#own-preview [aria-busy=true]") !== null;
  return [{ checked: Boolean(preview?.checked) || isBeingChecked, edits }, ...given];
}"""
"""Script that sends, in place of the preview, what ``Sent`` describes."""
MAX_PASTED = 200_000  # characters
_INSTRUCTIONS = (
    "One pair per line (.tsv, .txt, .csv), JSON (.json, .jsonl), a pronouncing dictionary (.dict), or two files with "
    "one line per pair each; .gz is unpacked. What the columns are is recognized, and you can choose another reading. "
    "Text is UTF-8. A source may have several targets. "
    "A tenth of the sources is held out for testing and a tenth for validation (a fiftieth of more than 30,000); no "
    "source is in two splits. "
    "A column with `test` or `validation`, or files of their own, name the held-out pairs instead. "
    "The pairs are saved only with the runs that you train on them."
)
_KINDS = ("own-source-kind", "own-answer-kind")  # of the components that choose tokens
_VALIDATION = {"validation", "valid", "val", "dev"}


def build(runs: VisitorRuns, form: Form) -> None:
    """Build the form; the preset made for the pairs opens in the preset form."""
    staging = StagingArea(max_pairs=runs.limits.max_pairs)
    with gr.Row(elem_classes="actions"):
        gr.Markdown("### Your own pairs")
        close = gr.Button("Back to the charts", size="sm", scale=0, min_width=140, elem_id="own-close")
    gr.Markdown(_INSTRUCTIONS)
    # High enough that the label at the top does not cover the icon
    file: dict[str, Any] = {"type": "filepath", "height": 176, "min_width": 240}
    with gr.Row():
        pairs = gr.File(label="Pairs, or source file", elem_id="own-file", **file)
        targets = gr.File(label="Target file (optional)", elem_id="own-targets", **file)
        held_out = gr.File(label="Held-out pairs (optional)", elem_id="own-held-out", file_count="multiple", **file)
    pasted = gr.Textbox(
        label="Or paste pairs",
        info="one per line: source, a tab or =>, target; or CSV or JSON",
        lines=4,
        max_lines=8,
        elem_id="own-pasted",
    )
    with gr.Row():
        kinds = [
            gr.Radio([AUTOMATIC, *each], value=AUTOMATIC, label=label, info=info, elem_id=elem_id, min_width=280)
            for each, label, info, elem_id in (
                (
                    TOKEN_KINDS,
                    "Source tokens",
                    "automatic: chosen by the pairs, for both sides · inflection: as reiterar V;NEG",
                    _KINDS[0],
                ),
                (
                    [kind for kind in TOKEN_KINDS if kind != "inflection"],
                    "Target tokens",
                    "symbol: split at spaces · subword: pieces of words, on both sides",
                    _KINDS[1],
                ),
            )
        ]
    with gr.Row(elem_classes="actions"):
        look = gr.Button("Check the data", variant="secondary", elem_id="own-look", min_width=160)
    preview = data_preview(runs.limits.max_upload_mb)
    found, preset, columns = gr.State(None), gr.State(None), gr.State(None)
    asked = gr.State(0)  # the time of the last request for a check
    outputs = {"preview": preview, "found": found, "preset": preset, "columns": columns}

    # As soon as a file is there or is removed, because Train next to it trains what was checked
    changes = [event for each in (pairs, targets, held_out) for event in (each.upload, each.clear, each.delete)]
    gr.on([look.click, *changes], lambda: time.time_ns(), None, asked, **QUIET, **LATEST)
    matched = dict(zip(_KINDS, kinds, strict=True)) | {"asked": asked}
    for name, kind in zip(_KINDS, kinds, strict=True):
        match = by_name(partial(match_kinds, name), matched)
        kind.input(match, [preview, *kinds], list(matched.values()), js=WITH_EDITS, **QUIET, **LATEST)
    preview.select(_chosen_columns, [pairs, targets], [columns, asked], **QUIET, **PRESSED)

    # One event, so that the answer for earlier pairs never replaces that for later ones
    checked = asked.change(
        by_name(partial(check_sent, runs, staging), outputs),
        [preview, columns, pairs, targets, held_out, pasted, *kinds],
        list(outputs.values()),
        js=WITH_EDITS,
        **LATEST,
        **QUIET,
        **CHECK,
    )
    form.open_on(checked.then, draft_for, [preset, form.draft])
    # Of what the server found last: the page may still show, and send, what was found before
    checked.then(partial(preview_with_time, runs), [found, preset], preview, **LATEST, **QUIET, **CHECK)
    close.click(None, None, None, js="() => { document.body.dataset.side = ''; }", api_visibility="private")


@dataclass(frozen=True)
class ChosenColumns:
    """The reading of the columns that the visitor chose, and the pairs that it is for.

    Attributes:
        columns: as ``parse_columns`` reads it.
        origin: the uploaded file, "pasted pairs", or both files.
    """

    columns: str
    origin: str


class Sent(BaseModel):
    """What the page sends of the preview: whether pairs were or are being checked, and how often they were edited."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    checked: bool = False
    edits: Annotated[int, Field(ge=0)] = 0


def match_kinds(changed: str, preview: Any, *chosen: str) -> Updates:
    """Match the tokens of the other side to those that were changed; ask for a check of pairs that were checked before.

    Args:
        changed: ``elem_id`` of the component.
        preview: as ``WITH_EDITS`` sends it.
        chosen: the tokens of the source and of the target.

    Raises:
        InputError: ``preview`` is something else.
    """
    kinds = dict(zip(_KINDS, chosen, strict=True))
    other = next(name for name in kinds if name != changed)
    kinds[other] = matching_kind(kinds[changed], kinds[other])
    return kinds | ({"asked": time.time_ns()} if _sent(preview).checked else {})


def check_sent(
    runs: VisitorRuns, staging: StagingArea, preview: Any, chosen: ChosenColumns | None, *given: Any
) -> Updates:
    """Check the pairs of the form; return updates of the form.

    Args:
        preview: as ``WITH_EDITS`` sends it.
        chosen: the reading of the columns.
        given: the other arguments of ``check_pairs``, without ``columns``.

    Raises:
        InputError: ``preview`` is something else.
    """
    edits = _sent(preview).edits
    columns = chosen.columns if chosen and chosen.origin == _origin(*given[:2]) else ""
    found = check_pairs(runs, staging, *given, columns=columns)
    preview = found["preview"] | {"edits": edits}
    return found | {"preview": preview, "found": preview, "columns": chosen if columns else None}


def _sent(preview: Any) -> Sent:
    try:
        return Sent.model_validate(preview)
    except ValidationError as error:
        raise InputError("the state of the preview is not one that the page sends") from error


def _chosen_columns(pairs: str | None, targets: str | None, event: gr.EventData) -> tuple[ChosenColumns, int]:
    return ChosenColumns(event_text(event, "columns"), _origin(pairs, targets)), time.time_ns()


def _origin(pairs: str | None, targets: str | None) -> str:
    return " and ".join(filter(None, (pairs, targets))) or "pasted pairs"


def check_pairs(
    runs: VisitorRuns,
    staging: StagingArea,
    pairs: str | None,
    targets: str | None,
    held_out: Sequence[str] | None,
    pasted: str | None,
    source_kind: str,
    target_kind: str,
    *,
    columns: str = "",
) -> Updates:
    """Ingest pairs; return the updates of their preview and of a preset that trains on them, or an error and None.

    Args:
        columns: the reading that the visitor chose, as ``parse_columns`` reads it; "" or one for another number of
            columns, as pasted pairs have after an edit, recognizes it.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            files = _files(Path(folder), pairs, targets, held_out, pasted or "")
            if columns and not targets:
                chosen = parse_columns(columns)
                if len(chosen.roles) == len(reading_of(files.pairs).columns.roles):
                    files = replace(files, columns=chosen)
            found, preset, held = staging.stage(files, kinds=_kinds(source_kind, target_kind))
            runs.register_upload(found.sha256, held)
    except LabError as error:
        return {"preview": {"problem": str(error), "checked": time.time_ns()}, "preset": None}
    return {"preview": preview_value(found) | {"checked": time.time_ns()}, "preset": preset}


def matching_kind(changed: str, other: str) -> str:
    """Return the other side's tokens after a side's were changed: automatic or subword is on both or on neither."""
    return changed if {changed, other} & {AUTOMATIC, "subword"} else other


def preview_with_time(
    runs: VisitorRuns, preview: dict[str, Any] | None, preset: Preset | None
) -> dict[str, Any] | None:
    """Return a preview with the training time of its preset on this machine, which takes a while to measure."""
    if preset is None or not preview or "facts" not in preview:
        return preview
    try:
        estimate = runs.wait_for_training_time(preset, seconds=LONGEST_WAIT)
    except LabError:  # the form's summary says why the preset cannot be trained here
        return preview
    if estimate == "pending":
        return preview
    shown = "too long to estimate" if estimate is None else duration_range(estimate.low, estimate.high)
    return with_time(preview, shown if estimate is None else f"{shown} on this machine")


def draft_for(preset: Preset | None, draft: Draft) -> Draft | None:
    """Return a draft that opens with the preset of the pairs, if there is one."""
    return None if preset is None else draft.next(preset, base=preset)


def _kinds(source: str, target: str) -> Kinds | None:
    """Return the tokens of both sides, None if they are to be chosen; InputError for others."""
    if source == target == AUTOMATIC:
        return None
    kinds = [kind for name in (source, target) for kind in TOKEN_KINDS if kind == name]
    if len(kinds) < 2:
        raise InputError(
            f"tokens={shortened(source, 20)},{shortened(target, 20)} must be automatic on both sides, "
            f"or {', '.join(TOKEN_KINDS)}"
        )
    return kinds[0], kinds[1]


def _files(
    folder: Path, pairs: str | None, targets: str | None, held_out: Sequence[str] | None, pasted: str
) -> PairFiles:
    """Return the uploaded files, with pasted pairs written to one; InputError if there is no data or both."""
    if pairs and pasted.strip():
        raise InputError("there are both a file and pasted pairs; remove one of them")
    if len(pasted) > MAX_PASTED:
        raise InputError(f"the pasted pairs have {len(pasted):,} characters, more than {MAX_PASTED:,}; upload a file")
    others = [Path(each) for each in held_out or ()]
    if pasted.strip():
        path = folder / "pasted-pairs"  # the preset is named after it
        text = pasted.replace("\r\n", "\n")
        if not is_json(text):
            text = "\n".join(map(_with_tab, text.split("\n")))  # splitlines() splits at more, such as U+2028
        content = f"{text}\n".encode("utf-8", "surrogatepass")  # a line with such bytes is reported when it is read
        path.write_bytes(content)
        return PairFiles(_named_by_format(path), held_out=held_out_files(others))
    if not pairs:
        raise InputError("no data yet: upload a file or paste pairs")
    if not targets:
        return PairFiles(Path(pairs), held_out=held_out_files(others))
    return PairFiles(Path(pairs), Path(targets), held_out_files(others, suffixes=(_suffix(pairs), _suffix(targets))))


def held_out_files(files: Sequence[Path], *, suffixes: tuple[str, str] | None = None) -> tuple[HeldOutFile, ...]:
    """Return what files of held-out pairs are for: validation if named dev, valid or validation, otherwise testing.

    Several files for testing are test sets with their names.

    Args:
        suffixes: of source and target files, if the pairs are in two files; then those of one name belong together.

    Raises:
        InputError: a source file has no target file.
    """
    found = [(file, None) for file in files] if suffixes is None else list(_matched(files, suffixes))
    is_validation = {file: bool(_VALIDATION & set(re.split(r"[^a-z0-9]+", file.name.lower()))) for file, _ in found}
    is_alone = sum(not each for each in is_validation.values()) == 1
    return tuple(
        HeldOutFile(file, targets, "validation")
        if is_validation[file]
        else HeldOutFile(file, targets, "test", "" if is_alone else set_name(file.name.partition(".")[0]))
        for file, targets in found
    )


def _matched(files: Sequence[Path], suffixes: tuple[str, str]) -> Iterator[tuple[Path, Path | None]]:
    """Yield the source and target file of each name."""
    by_name = {file.name: file for file in files}
    for file in files:
        stem = file.name.removesuffix(suffixes[0])
        if suffixes[0] != suffixes[1] and stem != file.name:
            if (targets := by_name.get(stem + suffixes[1])) is None:
                raise InputError(
                    f"held-out file {short_repr(file.name)} has no counterpart {short_repr(stem + suffixes[1])}"
                )
            yield file, targets
        elif suffixes[0] == suffixes[1] or not file.name.endswith(suffixes[1]):
            yield file, None


def _suffix(file: str) -> str:
    """Return the end of a file's name from its first dot on, such as ``.en.gz``."""
    _, dot, suffix = Path(file).name.partition(".")
    return dot + suffix


def _named_by_format(pasted: Path) -> Path:
    """Return the file of pasted lines, as TSV, which the form asks for, if they show no format."""
    try:
        format_of(pasted)
    except UnknownFormatError:
        return pasted.rename(pasted.with_suffix(".tsv"))
    return pasted


def _with_tab(line: str) -> str:
    """Return a line of ``source => target`` with a tab; a line of JSON as it is, which may have an arrow in a text."""
    if is_json(line):
        return line
    source, arrow, target = line.partition("=>")
    return f"{source.strip()}\t{target.strip()}" if arrow and "\t" not in line else line
