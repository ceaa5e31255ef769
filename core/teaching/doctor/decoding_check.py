"""The check of greedy decoding: it must produce what the model predicts for the tokens before."""

from collections.abc import Callable

import torch

from core.teaching.doctor.any_model import AnyModel
from core.teaching.doctor.black_box import NotCheckableError, spread
from core.teaching.doctor.finding import Finding

TIE = 1e-3  # standard deviations of the logits; of two predictions that are closer, either is right


@torch.no_grad()
def check_decoding(subject: AnyModel, decode: Callable[[torch.Tensor], torch.Tensor]) -> Finding:
    """Each decoded token, up to EOS, is the model's prediction when it reads the decoded tokens before it.

    Args:
        subject: in evaluation mode.
        decode: takes sources in the layout of the model; returns ids, with or without BOS.

    Raises:
        NotCheckableError: ``decode`` returns something else, or no token.
    """
    name, special = "greedy decoding", subject.special
    src, _ = subject.few
    result = decode(subject.turned(src))
    if not isinstance(result, torch.Tensor) or result.ndim != 2 or result.is_floating_point():
        raise NotCheckableError("decode returns no tensor of ids (B, T).")
    decoded = subject.turned(result)
    if len(decoded) != len(src) or not decoded.numel():
        raise NotCheckableError(f"decode returns {tuple(result.shape)} ids for {len(src)} sources.")
    src, decoded = subject.begun(src, decoded)
    read, produced = decoded[:, :-1], decoded[:, 1:]
    is_end = (produced == special.eos).int()
    counts = (is_end.cumsum(dim=1) - is_end) == 0  # up to the first EOS
    counts &= (produced != special.tgt_pad) | (special.tgt_pad == special.eos)
    if not counts.any():
        raise NotCheckableError("decode returns no token.")
    logits = subject.logits(src, read)
    lost = logits.amax(dim=-1) - logits.gather(-1, produced[..., None])[..., 0]
    differs = counts & (lost > TIE * spread(logits))
    fraction = (differs.sum() / counts.sum()).item()
    if not differs.any():
        sentence = f"All {int(counts.sum())} tokens decoded are those that forward predicts for the tokens before."
        return Finding(name, "green", sentence, fraction)
    first = int(differs.any(dim=0).int().argmax())
    sentence = (
        f"{fraction:.0%} of the decoded tokens are not those that forward predicts for the tokens before them, the "
        f"first at step {first + 1}. Possible causes: a cache or positions off by one, another mask, dropout, or "
        "another beginning than BOS."
    )
    return Finding(name, "red", sentence, fraction)
