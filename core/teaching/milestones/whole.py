"""Milestone 5: a whole Transformer and its training, examined by the doctor, and trained for a few updates."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from core.teaching.doctor import Examination, diagnose
from core.teaching.doctor.black_box import NotCheckableError
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.milestones.arguments import BOS, EOS, PAD, Sizes, build, mask_parameters, parameters_of, tensors_in
from core.training import without_compiler

SIZES = Sizes(d_model=32, num_heads=4, d_ff=64)
KINDS = ("vocab_size", "d_model", "num_heads", "d_ff", "d_k", "num_layers", "expansion", "max_len")
PAIRS, LONGEST = 16, 6
UPDATES, LEARNING_RATE, SECONDS = 60, 2e-3, 60.0  # seconds of processor time
LEARNED = 0.7  # of the first loss, on pairs that it has seen in every update

MISSING = {
    "pass loss=": "the file has no compute_loss(model, src, tgt).",
    "pass decode=": "the file has no greedy_decode(model, src).",
    "pass optimizer=": "the file has no build_optimizer(model).",
}
"""What a file lacks where the doctor asks for an argument."""

CONTRACT = (
    "build_transformer(vocab_size) returns a module that is called as model(src, tgt_in), with ids (B, S) and (B, T) "
    f"padded with {PAD}, makes its masks itself, and returns logits (B, T, vocab_size)"
)


class ModelChecks:
    """The checks of a whole model; each returns a finding.

    Args:
        what: a function or class that builds the model.
        others: the file's functions "loss", called with model, src and tgt; "decode", with model and src; "optimizer",
            with the model.

    Attributes:
        conventions: what was found out, in words.
    """

    def __init__(self, what: Callable[..., Any], others: Mapping[str, Callable[..., Any]]) -> None:
        self.what = what
        self.model: Any = build(what, SIZES, KINDS)
        self.others = others
        self.conventions: list[str] = []
        called = [name for name, each in parameters_of(self.model).items() if each.default is each.empty]
        if masks := [name for name in mask_parameters(self.model) if name in called]:
            raise NotCheckableError(f"its forward needs {' and '.join(masks)}; {CONTRACT}.")
        self.src, self.tgt = reversal_pairs()

    def findings(self) -> Iterator[Finding]:
        """Yield the doctor's findings, and one about a short training."""
        for each in self._examined().findings:
            missing = next((text for argument, text in MISSING.items() if argument in each.sentence), "")
            yield not_checked(each.check, missing) if each.light == "gray" and missing else each
        yield self.learns()

    def _examined(self) -> Examination:
        loss, decode = self.others.get("loss"), self.others.get("decode")
        optimizer = self.others.get("optimizer")
        is_module = isinstance(self.model, nn.Module)
        return diagnose(
            self.model,
            self.src,
            self.tgt,
            pad=PAD,
            bos=BOS,
            eos=EOS,
            loss=loss,
            decode=None if decode is None else lambda src: decode(self.model, src),
            optimizer=optimizer(self.model) if optimizer is not None and is_module else None,
            batch_first=True,
        )

    def learns(self) -> Finding:
        """Some updates on a few pairs lower their loss."""
        name = "short training"
        if not isinstance(self.model, nn.Module) or not any(each.requires_grad for each in self.model.parameters()):
            return not_checked(name, "it is no nn.Module with parameters.")
        model = build(self.what, SIZES, KINDS)  # the doctor's subject stays untrained
        model.train()
        adam = without_compiler.Adam(model.parameters(), LEARNING_RATE)
        losses: list[float] = []
        started = time.process_time()
        for _ in range(UPDATES):
            if time.process_time() - started > SECONDS:
                return not_checked(
                    name, f"{len(losses)} updates took {SECONDS:g} s of processor time; build a smaller model."
                )
            loss = self._loss(model)
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            losses.append(loss.item())
        first, last = losses[0], losses[-1]
        sentence = f"{UPDATES} updates of Adam on {PAIRS} pairs change their loss from {first:.2f} to {last:.2f}"
        if last < LEARNED * first:
            return Finding(name, "green", f"{sentence}.", last)
        return Finding(name, "red", f"{sentence}: a model should be able to learn what it has seen so often.", last)

    def _loss(self, model: nn.Module) -> torch.Tensor:
        if "loss" in self.others:
            return self.others["loss"](model, self.src, self.tgt)
        logits = tensors_in(model(self.src, self.tgt[:, :-1]))[0]
        return F.cross_entropy(logits.flatten(0, 1), self.tgt[:, 1:].flatten(), ignore_index=PAD)


def reversal_pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """Return sources and targets (B, T) int64 of reversals: BOS, 2 to 6 tokens, EOS, then PAD."""
    generator = torch.Generator().manual_seed(0)
    src = torch.full((PAIRS, LONGEST + 2), PAD)
    tgt = src.clone()
    for row in range(PAIRS):
        length = 2 + row % (LONGEST - 1)
        ids = torch.randint(EOS + 1, SIZES.vocab_size, (length,), generator=generator)
        for into, tokens in ((src, ids), (tgt, ids.flip(0))):
            into[row, : length + 2] = torch.cat([torch.tensor([BOS]), tokens, torch.tensor([EOS])])
    return src, tgt
