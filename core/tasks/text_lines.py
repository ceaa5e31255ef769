"""Language modeling by character: ``The LORD is my `` continues with ``shepherd; I shall not want.``."""

from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import torch

from core.config.tasks import TextConfig
from core.tasks.data import add_bos_eos, pad_rows, split_mask
from core.tasks.task import Batch, Split, Task
from core.text.validation import check_input_length
from core.text.vocab import PAD_ID, Vocab

TEXT = Path(__file__).parent / "texts" / "job-to-lamentations.txt"
PROMPTED_SHARE = 0.25  # of the training lines; the others have an empty source


class TextLines(Task):
    """The verses of the Bible from Job to the Lamentations, each once, cut to ``max_length`` characters.

    The target is a line and the source is empty, so the decoder is a language model; for some training lines the
    source is the beginning of the line and the target the rest. There is no single correct answer: the measure is the
    loss on held-out lines.

    Args:
        config: the preset's ``task`` section.
    """

    open_ended = True

    def __init__(self, config: TextConfig, pairs: Path | None = None) -> None:
        self.src_vocab = self.tgt_vocab = _vocab()
        self.min_length, self.max_length = 0, config.longest_source
        self.examples = tuple(text for text in ("The LORD is ", "Blessed ", "A wise ") if len(text) <= self.max_length)
        self._table = _table(config.max_length)

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        return "lines uniform, with an empty source"

    def sample(self, count: int, *, split: Split, generator: torch.Generator) -> Batch:
        """Draw ``count`` lines of a split, uniformly; see ``Task.sample``."""
        device = generator.device
        table = self._lines_of(split).to(device)
        lines = table[torch.randint(len(table), (count,), generator=generator, device=device)]
        prompt_lengths = torch.zeros(count, 1, dtype=torch.int64, device=device)
        if split == "train":
            longest = ((lines != PAD_ID).sum(dim=1, keepdim=True) - 1).clamp(max=self.max_length)
            fraction = torch.rand(2, count, 1, generator=generator, device=device)
            prompt_lengths = torch.where(fraction[0] < PROMPTED_SHARE, 1 + (fraction[1] * longest).long(), 0)
        positions = torch.arange(lines.shape[1], device=device)
        prompts = lines.masked_fill(positions >= prompt_lengths, PAD_ID)[:, : self.max_length]
        padded = torch.nn.functional.pad(lines, (0, self.max_length), value=PAD_ID)
        return Batch(add_bos_eos(prompts), add_bos_eos(padded.gather(1, positions + prompt_lengths)))

    @property
    def lengths(self) -> range:
        """Empty: there is no accuracy to measure by length."""
        return range(0)

    def lines(self, split: Split) -> list[list[int]]:
        """Return the ids of every line of a split."""
        return [[index for index in row if index != PAD_ID] for row in self._lines_of(split).tolist()]

    def tokenize(self, text: str) -> list[str]:
        """Split the beginning of a line into characters, spaces included; it may be empty."""
        check_input_length(text)
        symbols = list(text.strip("\r\n"))
        self.src_vocab.encode(symbols)
        return symbols

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return []: there is no single correct answer."""
        return []

    def source_text(self, symbols: Sequence[str]) -> str:
        """Join the characters of a beginning."""
        return "".join(symbols)

    def answer_text(self, tokens: Sequence[str]) -> str:
        """Join the characters of a line."""
        return "".join(tokens)

    def note(self, symbols: Sequence[str]) -> str:
        """Say that there is no reference answer, and report a beginning longer than those of training."""
        no_reference = "a line has no single reference to compare with"
        return "; ".join(filter(None, [no_reference, super().note(symbols)]))

    def _lines_of(self, split: Split) -> torch.Tensor:
        """Return the lines of a split, (N, max_length) int64."""
        return self._table[split_mask(self._table, split)]


@lru_cache(4)
def _table(max_length: int) -> torch.Tensor:
    """Return the distinct lines, cut to ``max_length`` characters, (N, max_length) int64."""
    lines = dict.fromkeys(line[:max_length].rstrip() for line in _lines())
    return pad_rows([_vocab().encode(line) for line in lines], max_length)


@cache
def _vocab() -> Vocab:
    return Vocab(sorted(set("".join(_lines()))))


@cache
def _lines() -> tuple[str, ...]:
    return tuple(TEXT.read_text(encoding="utf-8").splitlines())
