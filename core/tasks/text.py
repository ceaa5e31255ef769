"""Lines of text to write, character by character: ``The LORD is my `` goes on with ``shepherd; I shall not want.``."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from core.tasks.drawing import framed, padded
from core.tasks.splits import Split, split_mask
from core.tasks.task import Batch, Task
from core.text.task_input import check_length
from core.text.vocab import PAD_ID, Vocab

TEXT = Path(__file__).parent / "texts" / "job-to-lamentations.txt"
PROMPTED_SHARE = 0.25  # of the lines in training: the others are written from nothing


class Text(Task):
    """The verses of the Bible from Job to the Lamentations, each once, cut to ``max_length`` characters.

    The answer is a line and the source is empty, so that the decoder models the text; in a part of the training the
    source is the beginning of the line and the answer the rest of it. No answer is the right one: what counts is how
    likely a model finds lines it has never seen. Held out are lines.

    Args:
        longest_prompt: characters of a line that may be its source.
    """

    open_ended = True

    def __init__(self, *, max_length: int, longest_prompt: int) -> None:
        lines = list(dict.fromkeys(line[:max_length].rstrip() for line in _lines()))
        self.src_vocab = self.tgt_vocab = Vocab(sorted(set("".join(_lines()))))
        self.min_length, self.max_length = 0, longest_prompt
        self.examples = tuple(text for text in ("The LORD is ", "Blessed ", "A wise ") if len(text) <= longest_prompt)
        self._table = padded([self.src_vocab.encode(line) for line in lines], max_length)  # (N, max_length) int64

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` lines of one split, each as likely; see ``Task.sample``."""
        device = generator.device
        table = self._of(split).to(device)
        lines = table[torch.randint(len(table), (count,), generator=generator, device=device)]
        prompts = torch.zeros(count, 1, dtype=torch.int64, device=device)  # lengths
        if split == "train":
            longest = ((lines != PAD_ID).sum(dim=1, keepdim=True) - 1).clamp(max=self.max_length)
            share = torch.rand(2, count, 1, generator=generator, device=device)
            prompts = torch.where(share[0] < PROMPTED_SHARE, 1 + (share[1] * longest).long(), 0)
        places = torch.arange(lines.shape[1], device=device)
        sources = lines.masked_fill(places >= prompts, PAD_ID)[:, : self.max_length]
        rest = torch.nn.functional.pad(lines, (0, self.max_length), value=PAD_ID).gather(1, places + prompts)
        return Batch(framed(sources), framed(rest))

    @property
    def lengths(self) -> range:
        """None: no answer is the right one, however long the beginning."""
        return range(0)

    def lines(self, split: Split) -> list[list[int]]:
        """Return the ids of every line of a split."""
        return [[index for index in row if index != PAD_ID] for row in self._of(split).tolist()]

    def read(self, text: str) -> list[str]:
        """Read the beginning of a line, which may be nothing at all; its spaces count."""
        check_length(text)
        symbols = list(text.strip("\r\n"))
        self.src_vocab.encode(symbols)
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return nothing: no line is the right one."""
        return []

    def text(self, tokens: Sequence[str]) -> str:
        """Write characters without anything between them."""
        return "".join(tokens)

    def note(self, symbols: Sequence[str]) -> str:
        """Say that there is nothing to compare an answer with, and if a beginning is longer than those trained on."""
        said = "many lines are as good, so there is none to compare with"
        return "; ".join(filter(None, [said, super().note(symbols)]))

    def _of(self, split: Split) -> torch.Tensor:
        """Return the lines of a split, (N, max_length) int64."""
        return self._table[split_mask(self._table, split)]


@cache
def _lines() -> tuple[str, ...]:
    return tuple(TEXT.read_text().splitlines())
