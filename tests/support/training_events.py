"""Events of a training run, to compare with those of another run."""

from collections.abc import Iterable

from core.training.loop import EvaluationEvent, Event, StepEvent


def comparable(events: Iterable[Event]) -> list[tuple]:
    """Everything in events that must repeat: all but the speed."""
    return [
        (event.step, event.loss, event.learning_rate, event.gradient_norm)
        if isinstance(event, StepEvent)
        else (event.step, event.evaluation, event.is_best, event.train_loss)
        if isinstance(event, EvaluationEvent)
        else (event.step, event.reason, event.message)
        for event in events
    ]
