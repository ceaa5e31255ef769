"""A decode as the browser sends it back, to have something computed for it: nothing is kept between calls."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field

from core.interpret.interventions import Ablation
from core.interpret.trained import Trained
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.text.vocab import BOS, EOS, Vocab
from ui.components.component import RunRequest
from ui.interventions import InterventionSpec

MAX_TOKENS = 2_050  # of a source or an answer, special tokens included
MAX_TOKEN = 200  # characters

Token = Annotated[str, Field(max_length=MAX_TOKEN)]


class DecodeRequest(RunRequest):
    """A decode that the browser shows: its input, its output and its interventions.

    Attributes:
        source: input tokens with BOS and EOS.
        tokens: output tokens, EOS included.
    """

    source: list[Token] = Field(min_length=2, max_length=MAX_TOKENS)
    tokens: list[Token] = Field(min_length=1, max_length=MAX_TOKENS)
    ablate: list[Token] = Field(default=[], max_length=MAX_TOKENS)
    patterns: list[Token] = Field(default=[], max_length=MAX_TOKENS)
    ablate_with: Ablation = "zero"

    def ids(self, loaded: Trained) -> tuple[torch.Tensor, torch.Tensor]:
        """Return source and output as ids, (1, S) and (1, T) int64; InputError if the run's task has no such token."""
        task, longest = loaded.task, loaded.model.max_seq_len
        for name, tokens in (("source", self.source), ("tokens", self.tokens)):
            if len(tokens) > longest:
                raise InputError(f"{name} has {len(tokens)} tokens, more than max_seq_len={longest}")
        if [self.source[0], self.source[-1]] != [BOS, EOS]:
            raise InputError(f"source must start with {BOS} and end with {EOS}")
        return _ids("source", self.source, task.src_vocab), _ids("tokens", self.tokens, task.tgt_vocab)

    def interventions(self) -> InterventionSpec:
        """Return the interventions by name."""
        return InterventionSpec(self.run, tuple(self.ablate), tuple(self.patterns), self.ablate_with)


def _ids(name: str, tokens: Sequence[str], vocab: Vocab) -> torch.Tensor:
    """Return the ids of tokens, special ones included, (1, T) int64."""
    known = {token: index for index, token in enumerate(vocab.tokens)}
    for token in tokens:
        if token not in known:
            raise InputError(
                f"{name} has the token {short_repr(token, 20)}, which is not in the vocabulary of this run"
            )
    return torch.tensor([[known[token] for token in tokens]])
