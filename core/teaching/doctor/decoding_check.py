"""The check of greedy decoding: it must produce what the model predicts for the tokens before."""

from collections.abc import Callable

import torch

from core.config.counting import percent
from core.teaching.doctor.any_model import AnyModel
from core.teaching.doctor.black_box import NotCheckableError, spread
from core.teaching.doctor.finding import Finding

TIE = 1e-3  # standard deviations of the logits; of two predictions that are closer, either is right


@torch.no_grad()
def check_decoding(subject: AnyModel, decode: Callable[[torch.Tensor], torch.Tensor]) -> Finding:
    """Each decoded token, up to EOS, is the model's prediction when it reads the decoded tokens before it.

    EOS at the last step may be another: it ends what is as long as decoding allows.

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
    forced = torch.zeros_like(differs)  # as Hugging Face's generate ends what has the maximum length
    forced[:, -1] = differs[:, -1] & (produced[:, -1] == special.eos) & counts[:, :-1].any(dim=1)
    counts, differs = counts & ~forced, differs & ~forced
    fraction = (differs.sum() / counts.sum()).item()
    if not differs.any():
        sentence = f"All {int(counts.sum())} tokens decoded are those that forward predicts for the tokens before."
        if forced.any():
            sentence += (
                f" EOS at the last step is not, {int(forced.sum())} times, and does not count: it may be forced."
            )
        return Finding(name, "green", sentence, fraction)
    first = int(differs.any(dim=0).int().argmax())
    sentence = (
        f"{percent(fraction, 0)} of the decoded tokens are not those that forward predicts for the tokens before them, "
        f"the first at step {first + 1}. Possible causes: a cache or positions off by one, another mask, dropout, "
        "another beginning than BOS, or a rule that forces or forbids tokens."
    )
    return Finding(name, "red", sentence, fraction)
