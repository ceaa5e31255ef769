"""Checks of the recorded health of a run: gradients, updates, perplexity, heads and layers over its training.

Each sentence reports an observation with its number and step, and what to do about it.
"""

from collections.abc import Callable, Sequence
from statistics import median

from core.interpret.health import Figure, Health
from core.interpret.health_course import marked_heads
from core.teaching.doctor.finding import Finding, not_checked

Course = Sequence[tuple[int, Health]]  # step and health, oldest first

VANISHING, EXPLODING = 1e-6, 10.0  # gradient norm of a part
SPIKES = 0.1  # fraction of the recorded steps that may exceed it in a successful training, since norms are clipped
LEARNED = 1.1  # perplexity: below it, small gradients only mean that there is little left to learn
SMALL_UPDATE, LARGE_UPDATE = 1e-5, 3e-2  # median over the training; about 1e-3 is usual
MIN_COURSE = 4  # recorded steps; with fewer it is too early to judge
NO_FALL, RISE = 0.98, 1.5  # perplexity of the last half, as a fraction of the lowest before
GROWTH = 100.0  # of a layer's output since the first step
LARGE_LOGITS = 32.0  # root mean square: from here on bfloat16 rounds them to steps of 0.25


def check_health(course: Course) -> list[Finding]:
    """Check the recorded course of a run; [] if nothing was recorded.

    Logits are left out of a run whose version did not record their size.
    """
    findings = [check(course) for check in _CHECKS] if course else []
    return findings + ([check_recorded_logits(course)] if _logit_sizes(course) else [])


def check_recorded_gradients(course: Course) -> Finding:
    """No part's gradients vanish while there is something to learn, and none explode, except for rare spikes."""
    name = "gradients while training"
    norms = [
        (norm, part, step, health.perplexity)
        for step, health in course
        for part, norm in (health.gradient_norm or {}).items()
        if norm is not None
    ]
    if not norms:
        return not_checked(name, "no update was recorded yet.")
    largest, part, step, _ = max(norms)
    recorded, spikes = ({each for norm, _, each, _ in norms if norm > least} for least in (-1, EXPLODING))
    often = f"above {EXPLODING:g} at {len(spikes)} of {len(recorded)} recorded steps"
    if len(spikes) > SPIKES * len(recorded):
        sentence = f"At step {step:,} the gradients of {part} had a norm of {largest:.3g}; it was {often}. "
        return Finding(
            name, "amber", sentence + "Lower max_gradient_norm or the learning rate, or warm up longer.", largest
        )
    learning = [each for each in norms if each[3] is None or each[3] > LEARNED]
    smallest, part, step, _ = min(learning or norms)
    if learning and smallest < VANISHING:
        sentence = f"At step {step:,} the gradients of {part} had a norm of only {smallest:.1e}: it does not learn. "
        return Finding(
            name, "amber", sentence + "Use pre-norm layers, fewer layers or another initialization.", smallest
        )
    sentence = f"The gradient norms of all parts stayed between {min(norms)[0]:.1e} and {largest:.3g}"
    return Finding(name, "green", sentence + (f", {often}." if spikes else "."), largest)


def check_recorded_updates(course: Course) -> Finding:
    """Updates change the weights by about a thousandth of their norm."""
    name = "updates while training"
    sizes = [
        max(values)
        for _, health in course
        if (values := [size for size in (health.update_size or {}).values() if size is not None])
    ]
    if not sizes:
        return not_checked(name, "no update was recorded yet.")
    if len(sizes) < MIN_COURSE:
        return not_checked(name, f"only {len(sizes)} updates were recorded.")
    middle, last = median(sizes), course[-1][0]
    seen = f"Up to step {last:,}, half of the updates changed a part by {middle:.1e} of its norm or more"
    if middle > LARGE_UPDATE:
        return Finding(name, "amber", f"{seen}; about 1e-3 is usual. Lower the learning rate.", middle)
    if middle < SMALL_UPDATE:
        return Finding(name, "amber", f"{seen} only; about 1e-3 is usual. Raise the learning rate.", middle)
    return Finding(name, "green", f"{seen}; about 1e-3 is usual.", middle)


def check_recorded_perplexity(course: Course) -> Finding:
    """The validation perplexity falls, and does not rise again."""
    name = "perplexity while training"
    points = [(step, health.perplexity) for step, health in course if health.perplexity is not None]
    if len(points) < MIN_COURSE:
        return not_checked(name, "it is too early to judge the course of the perplexity.")
    half = len(points) // 2
    last_step, last = points[-1]
    best_step, best = min(points, key=lambda each: each[1])
    if last > RISE * best:
        sentence = f"The perplexity was {best:.3g} at step {best_step:,} and rose to {last:.3g} at step {last_step:,}. "
        return Finding(
            name, "amber", sentence + "Stop earlier, or train with more data, dropout or weight decay.", last
        )
    before, after = (min(value for _, value in part) for part in (points[:half], points[half:]))
    if after > max(NO_FALL * before, LEARNED):
        sentence = f"The perplexity has not fallen since step {points[half - 1][0]:,}: it is {last:.3g}. "
        advice = "Raise or lower the learning rate, or use a larger model."
        return Finding(name, "amber", sentence + advice, last)
    return Finding(name, "green", f"The perplexity fell from {points[0][1]:.3g} to {last:.3g}.", last)


def check_recorded_heads(course: Course) -> Finding:
    """No head attends to one key whatever the query, and none adds nothing to its layer."""
    name = "heads while training"
    step, health = course[-1]
    if not any(health.heads.entropy_share.values()):
        return not_checked(name, "the model has no attention heads.")
    marked = {mark: [str(each.head) for each in marked_heads(health) if each.mark == mark] for mark in _ADVICE}
    sentences = []
    for mark, heads in marked.items():
        if heads:
            since = min(_since(course, head, mark) for head in heads)
            first, more = heads[0], f" and {len(heads) - 1} more" if len(heads) > 1 else ""
            sentences.append(
                f"At step {step:,} {first}{more} {_ADVICE[mark][0]}, since step {since:,}. {_ADVICE[mark][1]}"
            )
    if sentences:
        return Finding(name, "amber", " ".join(sentences), float(sum(map(len, marked.values()))))
    return Finding(name, "green", f"At step {step:,} no head is dead or collapsed.", 0.0)


def check_recorded_layers(course: Course) -> Finding:
    """The outputs of layers keep their size."""
    name = "layer outputs while training"
    if len(course) < 2:
        return not_checked(name, "only one step was recorded.")
    last_step, last = course[-1]
    ratios = [
        (size / first, layer, size)
        for layer, size in last.heads.layer_rms.items()
        if size is not None and (first := _first_size(course, layer))
    ]
    if not ratios:
        return not_checked(name, "the model has no layers whose output was recorded.")
    ratio, layer, size = max(ratios)
    if ratio > GROWTH:
        sentence = f"The output of {layer} grew {ratio:.0f} times, to {size:.3g} at step {last_step:,}. "
        return Finding(name, "amber", sentence + "Use weight decay, a lower learning rate or post-norm layers.", ratio)
    return Finding(name, "green", f"The output of no layer grew more than {ratio:.1f} times.", ratio)


def check_recorded_logits(course: Course) -> Finding:
    """The logits do not grow without bound."""
    name = "logits while training"
    points = _logit_sizes(course)
    if len(points) < 2:
        return not_checked(name, "only one step was recorded.")
    (_, first), (step, last) = points[0], points[-1]
    sentence = f"The logits had a root mean square of {first:.3g} at first and {last:.3g} at step {step:,}"
    if last > max(first, LARGE_LOGITS):
        advice = f"{sentence}: above {LARGE_LOGITS:g}, 16 bits round them coarsely. "
        return Finding(name, "amber", advice + "Use label smoothing, weight decay or a lower learning rate.", last)
    return Finding(name, "green", f"{sentence}.", last)


_CHECKS: tuple[Callable[[Course], Finding], ...] = (
    check_recorded_gradients,
    check_recorded_updates,
    check_recorded_perplexity,
    check_recorded_heads,
    check_recorded_layers,
)
_ADVICE = {
    "collapsed": (
        "attended to one key whatever the query (entropy collapse)",
        "Lower the learning rate or warm up longer; if accuracy is high, the head may be a harmless rest position.",
    ),
    "dead": ("added almost nothing to the layer's output", "Use fewer heads, or remove these by ablation."),
}


def _since(course: Course, head: str, mark: str) -> int:
    """Return the step since which a head has had a mark without interruption."""
    since = course[-1][0]
    for step, health in reversed(course):
        if (head, mark) not in [(str(each.head), each.mark) for each in marked_heads(health)]:
            break
        since = step
    return since


def _logit_sizes(course: Course) -> list[tuple[int, float]]:
    return [(step, health.heads.logit_rms) for step, health in course if health.heads.logit_rms is not None]


def _first_size(course: Course, layer: str) -> Figure:
    return course[0][1].heads.layer_rms.get(layer)
