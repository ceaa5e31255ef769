"""A changed input for activation patching: same length, one token replaced, another prediction."""

from collections.abc import Iterator

import torch

from core.evaluation.passes import sequences_per_pass
from core.interpret.attribution.prediction import Prediction, token_id
from core.models import Seq2Seq
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks import Task
from core.tasks.masked_digits import MASK
from core.text.vocab import BOS_ID, EOS_ID

REPLACEMENTS = 9  # candidates per position: every other digit; in larger vocabularies an evenly spaced selection


@torch.no_grad()
def corrupt(
    model: Seq2Seq, task: Task, prediction: Prediction, *, position: int | None = None, replacement: str | None = None
) -> tuple[str, ...]:
    """Return the input with one token replaced, such that the model predicts another token at this step.

    Without a replacement, several are tried at the position, or at all positions. The result is the input with the
    largest lead of another token's logit, or the foil's if there is one, over the target's. Inputs that the task cannot
    read are skipped. Unless the caller requests it, a mask is not replaced, because that would reveal the token to
    infer, and no token is replaced by a mask, because that would hide information instead of changing it.

    Args:
        model: in evaluation mode.
        position: index of the token to replace, from 0, which may be a mask; None tries all positions without a mask.
        replacement: the new token, which need not change the prediction; requires a position.

    Raises:
        InputError: the position or token does not exist, or no replacement changes the prediction.
    """
    if position is not None and not 0 <= position < len(prediction.symbols):
        raise InputError(f"position {position + 1} is not a token of this input, which has {len(prediction.symbols)}")
    if replacement is not None:
        if position is None:
            raise InputError(
                f"replacement={short_repr(replacement, 40)} needs the position of the token that it replaces"
            )
        token_id(task.src_vocab, replacement, field="replacement")
        return _replaced(prediction.symbols, position, replacement)
    shown = [at for at, token in enumerate(prediction.symbols) if token != MASK]
    positions = shown if position is None else [position]
    candidates = [inputs for each in positions for inputs in _candidates(task, prediction, each)]
    if candidates:
        ids = [[BOS_ID, *task.src_vocab.encode(symbols), EOS_ID] for symbols in candidates]
        src = torch.tensor(ids, device=model.device)
        chunks = src.split(sequences_per_pass(model, max(src.shape[1], prediction.tgt_in.shape[1])))
        logits = torch.cat([model(each, prediction.tgt_in.expand(len(each), -1))[:, -1] for each in chunks])
        margin = _margin(prediction, logits)
        if margin.max() > 0:
            return candidates[int(margin.argmax())]
    where = "any position" if position is None else f"position {position + 1}"
    if position is None and len(shown) < len(prediction.symbols):
        where += f" but those of {MASK}"
    other = "another token" if prediction.foil_token is None else repr(prediction.foil_token)
    raise InputError(
        f"no other token at {where} makes the model predict {other} at step {prediction.step + 1}; "
        "choose another step, or change the input yourself"
    )


def _margin(prediction: Prediction, logits: torch.Tensor) -> torch.Tensor:
    """Return the lead of the foil, or of the best other token, over the target in logits (B, V): (B,) float."""
    if prediction.foil is not None:
        return -prediction.score(logits)
    others = logits.clone()
    others[:, prediction.target] = -torch.inf
    return others.amax(dim=-1) - logits[:, prediction.target]


def _candidates(task: Task, prediction: Prediction, position: int) -> Iterator[tuple[str, ...]]:
    """Yield inputs with another token at a position that the task can read, one with the foil first."""
    symbols = [token for token in task.src_vocab.symbols if token != MASK]
    selection = symbols[:: max(1, len(symbols) // REPLACEMENTS)]
    foil = [prediction.foil_token] if prediction.foil_token in symbols else []
    for token in dict.fromkeys([*foil, *selection]):
        changed = _replaced(prediction.symbols, position, token)
        if token != prediction.symbols[position] and _is_readable(task, changed):
            yield changed


def _is_readable(task: Task, symbols: tuple[str, ...]) -> bool:
    try:
        return tuple(task.tokenize(task.source_text(symbols))) == symbols
    except InputError:
        return False


def _replaced(symbols: tuple[str, ...], position: int, token: str) -> tuple[str, ...]:
    return (*symbols[:position], token, *symbols[position + 1 :])
