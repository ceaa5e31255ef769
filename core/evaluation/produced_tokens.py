"""Tokens that a model never produces, although references hold them."""

from collections import Counter
from dataclasses import dataclass

from core.evaluation.outputs import Outputs, with_eos
from core.tasks import Task
from core.text.vocab import PAD_ID


@dataclass(frozen=True)
class ProducedTokens:
    """The distinct tokens of references, and which of them no output has.

    Attributes:
        in_references: number of distinct tokens in the references, EOS included.
        total: number of tokens in the references.
        missing: the tokens that no output has, with their number in the references, the most frequent first.
    """

    in_references: int
    total: int
    missing: tuple[tuple[str, int], ...]

    @property
    def missing_share(self) -> float:
        """Share of the references' tokens that are never produced, 0-1."""
        return sum(count for _, count in self.missing) / self.total

    def listed(self, most: int = 8) -> str:
        """Return the most frequent missing tokens as text: ``7 (31), 9 (2)``."""
        names = ", ".join(f"{token} ({count:,})" for token, count in self.missing[:most])
        return names if len(self.missing) <= most else f"{names} and {len(self.missing) - most} more"


def produced_tokens(task: Task, outputs: Outputs) -> ProducedTokens:
    """Compare the tokens of outputs with those of their references.

    A reference ends with EOS here, as an answer must, even if its task trains without.
    """
    counts = Counter(with_eos(outputs.pairs.tgt_out).flatten().tolist())
    del counts[PAD_ID]
    produced = set(outputs.tokens.flatten().tolist())
    missing = [(task.tgt_vocab.tokens[token], count) for token, count in counts.most_common() if token not in produced]
    return ProducedTokens(len(counts), counts.total(), tuple(missing))
