"""What is read off the figures of a lesson's pair; a side is what ``core.teaching.lessons.measuring.measure_side`` returned."""

import torch

from core.tasks import build_task, fixed_pairs
from core.teaching.lessons import load_lesson
from core.text.vocab import PAD, PAD_ID


def maps(side: dict, block: str) -> list:
    """The maps of a block's last layer, one a head."""
    return side["attention"][block]["maps"][-1]


def above_diagonal(head: list) -> float:
    return sum(weight for row, line in enumerate(head) for weight in line[row + 1 :])


def on_pad(side: dict) -> float:
    block = side["attention"]["cross"]
    places = [place for place, token in enumerate(block["columns"]) if token == PAD]
    assert places
    return sum(line[place] for head in block["maps"][-1] for line in head for place in places)


def found(side: dict, check: str) -> dict:
    return next(each for each in side["doctor"]["findings"] if each["check"] == check)


def falls_sooner(right: dict, broken: dict) -> bool:
    at = int(0.4 * len(right["curve"]["loss"]))
    return broken["curve"]["loss"][at] < right["curve"]["loss"][at] / 2


def is_at_rest(losses: list[float]) -> bool:
    """Whether the last quarter of a curve falls by less than a tenth of all that it fell."""
    return losses[-len(losses) // 4] - losses[-1] < 0.1 * (losses[0] - losses[-1])


def writes_nothing_right(side: dict) -> bool:
    return side["figures"]["token_accuracy"] == 1 and side["figures"]["exact_match"] == 0


def common_tokens_loss(lesson: str) -> float:
    """The loss of somebody who knows how common each token is, in nats: the entropy of the test targets' tokens."""
    asked = fixed_pairs(build_task(load_lesson(lesson).right.task), 500, split="test").tgt_out
    shares = torch.bincount(asked[asked != PAD_ID]) / (asked != PAD_ID).sum()
    return torch.special.entr(shares).sum().item()


def share_of_longest(lesson: str) -> float:
    lengths = (fixed_pairs(build_task(load_lesson(lesson).right.task), 500, split="test").src != PAD_ID).sum(dim=1)
    return (lengths == lengths.max()).float().mean().item()
