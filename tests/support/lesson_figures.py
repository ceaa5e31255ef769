"""Quantities read from a lesson's results; ``side`` is what ``measure_side`` returns."""

import torch

from core.tasks import build_task, fixed_pairs
from core.teaching.lessons import load_lesson
from core.text.vocab import PAD, PAD_ID


def maps(side: dict, block: str) -> list:
    """The attention maps of a block's last layer, one per head."""
    return side["attention"][block]["maps"][-1]


def above_diagonal(head: list) -> float:
    """Attention mass on later positions."""
    return sum(weight for row, line in enumerate(head) for weight in line[row + 1 :])


def on_pad(side: dict) -> float:
    """Cross-attention mass on PAD in the last layer, summed over heads."""
    block = side["attention"]["cross"]
    columns = [column for column, token in enumerate(block["columns"]) if token == PAD]
    assert columns
    return sum(row[column] for head in block["maps"][-1] for row in head for column in columns)


def finding(side: dict, check: str) -> dict:
    """The doctor's finding of one check."""
    return next(each for each in side["doctor"]["findings"] if each["check"] == check)


def falls_sooner(right: dict, broken: dict) -> bool:
    """Whether the broken side's loss is below half of the correct one's after 40 % of the steps."""
    at = int(0.4 * len(right["curve"]["loss"]))
    return broken["curve"]["loss"][at] < right["curve"]["loss"][at] / 2


def has_converged(losses: list[float]) -> bool:
    """Whether the last quarter of a curve falls by less than a tenth of all that it fell."""
    return losses[-len(losses) // 4] - losses[-1] < 0.1 * (losses[0] - losses[-1])


def scores_only_when_teacher_forced(side: dict) -> bool:
    """Whether all tokens are right under teacher forcing and no generated sequence is."""
    return side["figures"]["token_accuracy"] == 1 and side["figures"]["exact_match"] == 0


def common_tokens_loss(lesson: str) -> float:
    """Entropy of the test targets' tokens in nats: the loss of a model that knows only token frequencies."""
    targets = fixed_pairs(build_task(load_lesson(lesson).right.task), 500, split="test").tgt_out
    frequencies = torch.bincount(targets[targets != PAD_ID]) / (targets != PAD_ID).sum()
    return torch.special.entr(frequencies).sum().item()


def fraction_of_longest(lesson: str) -> float:
    """Fraction of the test sources that have the greatest length."""
    lengths = (fixed_pairs(build_task(load_lesson(lesson).right.task), 500, split="test").src != PAD_ID).sum(dim=1)
    return (lengths == lengths.max()).float().mean().item()
