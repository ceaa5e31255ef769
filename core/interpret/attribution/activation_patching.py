"""Activation patching: copy an activation of the clean run into a run on a changed input; measure what it restores.

Every patch is a row of a batch, so a whole heat map is one or two forward passes. The decoder reads the clean answer's
tokens in both runs, so the runs differ only in the source (Meng et al. 2022; Wang et al. 2023; Zhang & Nanda 2024).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from core.config.counting import counted
from core.evaluation.passes import sequences_per_pass
from core.interpret.attribution.corrupted_input import corrupt
from core.interpret.attribution.patch_sites import Activation, GridName, Layout, Phase, Positions, SiteGrid, site_grids
from core.interpret.attribution.prediction import Prediction
from core.models import Seq2Seq
from core.models.hooks import Hook, hooks
from core.models.seq2seq import Block
from core.storage.errors import InputError
from core.tasks import Task
from core.text.vocab import BOS_ID, EOS_ID

LIMITS = (
    "Shows which activations are enough to bring the prediction back on this one changed input; it cannot show that "
    "they are the only ones, nor what they do on inputs that differ in another way."
)
MAX_TOKENS = 30_000  # of the rows of one batch, on the longer side
_MIN_DIFFERENCE = 1e-6  # minimum distance of two logit differences; below it there is nothing to restore


@dataclass(frozen=True, eq=False)
class PatchGrid:
    """A heat map: the share of the logit difference that each patch restores.

    The share is (patched - corrupted) / (clean - corrupted), of the difference of the logits of clean and corrupted
    prediction: 0 if the patch changes nothing, 1 if it restores the clean difference; it may leave this range.

    Attributes:
        name: "residual stream" (after each sublayer), "states" (of recurrent models), "attention output" or "heads".
        block: "encoder", "decoder" or "cross".
        positions: what columns are: "source" or "target" positions; None for heads, patched at all positions.
        rows: R labels: layers, or the sublayer after which the stream is patched.
        columns: C labels: tokens, or heads numbered from 1.
        restored: (R, C) float, the share.
        whole: (R,) float, the share with all columns of the row patched together.
        is_restored: (R, C) bool, whether the patched run predicts the clean prediction's token.
    """

    name: GridName
    block: Block
    positions: Positions | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    restored: torch.Tensor
    whole: torch.Tensor
    is_restored: torch.Tensor


@dataclass(frozen=True, eq=False)
class ActivationPatching:
    """All heat maps of one clean and one corrupted input.

    Attributes:
        prediction: the clean one; its foil is the token that the corrupted run predicts, unless it had another.
        corrupted: the changed input, with as many symbols as the clean one.
        changed: source positions that differ, from 0, BOS.
        clean_difference: logit of the target minus the foil's on the clean input.
        corrupted_difference: the same on the corrupted input.
        grids: the heat maps; the residual stream first.
    """

    prediction: Prediction
    corrupted: tuple[str, ...]
    changed: tuple[int, ...]
    clean_difference: float
    corrupted_difference: float
    grids: tuple[PatchGrid, ...]

    def grid(self, name: GridName, block: Block, positions: Positions | None = None) -> PatchGrid:
        """Return a heat map; without ``positions`` the first of that name and block. InputError if there is none."""
        for grid in self.grids:
            if (grid.name, grid.block) == (name, block) and positions in (None, grid.positions):
                return grid
        known = "; ".join(", ".join(filter(None, (each.name, each.block, each.positions))) for each in self.grids)
        wanted = ", ".join(map(str, filter(None, (name, block, positions))))
        raise InputError(f"grid={wanted} is not one of: {known}")

    def __repr__(self) -> str:
        source, changed = " ".join(self.prediction.symbols), " ".join(self.corrupted)
        return f"<ActivationPatching {source!r} into {changed!r}, {self.prediction}, {len(self.grids)} grids>"


@torch.no_grad()
def activation_patching(
    model: Seq2Seq, task: Task, prediction: Prediction, *, corrupted: Sequence[str] | None = None
) -> ActivationPatching:
    """Patch every activation of the clean run into a run on a changed input, one at a time.

    Args:
        model: in evaluation mode.
        prediction: of the clean input. Without a foil, the prediction on the changed input is the foil.
        corrupted: the changed input, of the same length; None chooses one, see ``corrupt``.

    Raises:
        InputError: the changed input has another length or no difference, or it does not change the prediction.
    """
    symbols = corrupt(model, task, prediction) if corrupted is None else tuple(corrupted)
    src = _read(task, prediction, symbols)
    changed = (src != prediction.src)[0].nonzero().flatten().tolist()
    if not changed:
        raise InputError("the changed input is the input itself; change a token")
    recorder = _Recorder()
    grids = site_grids(model)
    with hooks(recorder.hooks(grids, "encode")):
        memory = model.encode(prediction.src)
    with hooks(recorder.hooks(grids, "decode")):
        clean = model.decode(prediction.tgt_in, memory).logits[0, -1]
    unpatched = model(src, prediction.tgt_in)[0, -1]
    prediction = _with_foil(task, prediction, unpatched)
    columns = [_columns(model, grid, prediction) for grid in grids]
    variants = [
        _Variant(grid, row, cells)
        for grid, labels in zip(grids, columns, strict=True)
        for row in range(len(grid.rows))
        for cells in (*((column,) for column in range(len(labels))), tuple(range(len(labels))))
    ]
    logits = _patched_logits(model, src, prediction.tgt_in, variants, recorder)
    clean_difference, corrupted_difference = prediction.score(clean).item(), prediction.score(unpatched).item()
    if abs(clean_difference - corrupted_difference) < _MIN_DIFFERENCE:
        raise InputError("the changed input does not change the logit difference, so there is nothing to restore")
    restored = (prediction.score(logits) - corrupted_difference) / (clean_difference - corrupted_difference)
    is_restored = logits.argmax(dim=-1) == prediction.target
    return ActivationPatching(
        prediction,
        symbols,
        tuple(changed),
        clean_difference,
        corrupted_difference,
        tuple(_grids_from(grids, columns, restored.cpu(), is_restored.cpu())),
    )


@dataclass(frozen=True)
class _Variant:
    """One patched run: these columns of one row of a grid come from the clean run."""

    grid: SiteGrid
    row: int
    columns: tuple[int, ...]

    @property
    def activations(self) -> tuple[Activation, ...]:
        return self.grid.rows[self.row][1]

    @property
    def starts_in_encoder(self) -> bool:
        return any(activation.phase == "encode" for activation in self.activations)


class _Recorder:
    """Records the clean activations: the tensors of all calls, by phase and name of the hook point."""

    def __init__(self) -> None:
        self.calls: dict[tuple[Phase, str], list[torch.Tensor]] = {}

    def hooks(self, grids: list[SiteGrid], phase: Phase) -> dict[str, Hook]:
        """Return the hooks that record a phase."""
        names = {each.point.name for grid in grids for _, row in grid.rows for each in row if each.phase == phase}
        return {name: partial(self._record, (phase, name)) for name in names}

    def _record(self, key: tuple[Phase, str], x: torch.Tensor) -> None:
        self.calls.setdefault(key, []).append(x)


class _Patch:
    """Puts clean activations into cells of a batch: (row of the batch, column) pairs."""

    def __init__(self, calls: list[torch.Tensor], layout: Layout, cells: list[tuple[int, int]], last: int) -> None:
        self.calls, self.layout, self.last, self.number = calls, layout, last, 0
        self.rows, self.columns = torch.tensor(cells, device=calls[0].device).unbind(dim=1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activation with the cells of this call replaced."""
        number, self.number = self.number, self.number + 1
        x, clean = x.clone(), self.calls[number]
        if self.layout == "cells":
            x[self.rows, self.columns] = clean[0, self.columns]
            return x
        rows = self.rows[self.columns == (self.last if self.layout == "last" else number)]
        if self.layout == "steps":
            x[rows] = clean[0]
        else:
            x[:, rows] = clean[:, :1]
        return x


def _patched_logits(
    model: Seq2Seq, src: torch.Tensor, tgt_in: torch.Tensor, variants: list[_Variant], recorder: _Recorder
) -> torch.Tensor:
    """Return the last position's logits with each patch, (N, V)."""
    unpatched = model.encode(src)
    logits: list[torch.Tensor] = [torch.empty(0)] * len(variants)
    length = max(src.shape[1], tgt_in.shape[1])
    chunk = max(1, min(MAX_TOKENS // length, sequences_per_pass(model, length)))
    for starts_in_encoder in (True, False):
        chosen = [number for number, each in enumerate(variants) if each.starts_in_encoder == starts_in_encoder]
        for start in range(0, len(chosen), chunk):
            numbers = chosen[start : start + chunk]
            rows, last = [variants[number] for number in numbers], src.shape[1] - 1
            if starts_in_encoder:
                with hooks(_patches(rows, "encode", recorder, last)):
                    memory = model.encode(src.expand(len(rows), -1))
            else:
                memory = unpatched.select(torch.zeros(len(rows), dtype=torch.int64, device=src.device))
            with hooks(_patches(rows, "decode", recorder, last)):
                patched = model.decode(tgt_in.expand(len(rows), -1), memory).logits[:, -1]
            for number, row in zip(numbers, patched, strict=True):
                logits[number] = row
    return torch.stack(logits)


def _patches(variants: list[_Variant], phase: Phase, recorder: _Recorder, last: int) -> dict[str, Hook]:
    """Return the hooks that patch a batch of variants in one phase; ``last`` is the last source position."""
    cells: dict[tuple[str, Layout], list[tuple[int, int]]] = {}
    for row, variant in enumerate(variants):
        for activation in variant.activations:
            if activation.phase == phase:
                of_point = cells.setdefault((activation.point.name, activation.layout), [])
                of_point += [(row, column) for column in variant.columns]
    by_name: dict[str, Hook] = {}
    for (name, layout), of_point in cells.items():
        patch = _Patch(recorder.calls[phase, name], layout, of_point, last)
        by_name[name] = _both(by_name[name], patch) if name in by_name else patch
    return by_name


def _both(first: Hook, second: Hook) -> Hook:
    """Return a hook that applies two patches of one point, which are for different rows of the batch."""

    def apply(x: torch.Tensor) -> torch.Tensor | None:
        patched = first(x)
        return second(x if patched is None else patched)

    return apply


def _grids_from(
    grids: list[SiteGrid], columns: list[tuple[str, ...]], restored: torch.Tensor, is_restored: torch.Tensor
) -> Iterator[PatchGrid]:
    """Cut the results of all variants, (N,) each, into grids."""
    start = 0
    for grid, labels in zip(grids, columns, strict=True):
        shape = len(grid.rows), len(labels) + 1
        end = start + shape[0] * shape[1]
        shares, hits = restored[start:end].view(shape), is_restored[start:end].view(shape)
        rows = tuple(label for label, _ in grid.rows)
        yield PatchGrid(
            grid.name, grid.block, grid.positions, rows, labels, shares[:, :-1], shares[:, -1], hits[:, :-1]
        )
        start = end


def _columns(model: Seq2Seq, grid: SiteGrid, prediction: Prediction) -> tuple[str, ...]:
    """Return the labels of a grid's columns."""
    if grid.positions == "source":
        return prediction.source_labels
    if grid.positions == "target":
        return prediction.prefix_labels
    return tuple(str(head.head) for head in model.heads if (head.block, head.layer) == (grid.block, 1))


def _read(task: Task, prediction: Prediction, symbols: tuple[str, ...]) -> torch.Tensor:
    """Return the changed input as ids, (1, S)."""
    if len(symbols) != len(prediction.symbols):
        needed = len(prediction.symbols)
        raise InputError(f"the changed input has {counted(len(symbols), 'token')}; it must have {needed}, as the input")
    ids = task.src_vocab.encode(symbols)
    return torch.tensor([[BOS_ID, *ids, EOS_ID]], device=prediction.src.device)


def _with_foil(task: Task, prediction: Prediction, logits: torch.Tensor) -> Prediction:
    """Return the prediction with the token predicted on the changed input, of logits (V,), as foil if it has none."""
    if prediction.foil is not None:
        return prediction
    foil = int(logits.argmax())
    if foil == prediction.target:
        raise InputError(
            f"the changed input leaves the prediction at step {prediction.step + 1} at {prediction.target_token!r}; "
            "change a token that matters to it, or name a foil"
        )
    return replace(prediction, foil=foil, foil_token=task.tgt_vocab.tokens[foil])
