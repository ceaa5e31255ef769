"""``decode``: let a run answer one input."""

import argparse
import json

from core.cli.strategy_options import strategy_in_words, strategy_of
from core.generation import GREEDY
from core.interpret.ablation import read_edits
from core.interpret.inspection import Inspection, Step, inspect
from core.models.heads import Interventions
from core.runs import DEFAULT_ROOT
from core.runs.load import LoadedRun, SavedRuns
from core.storage.errors import InputError


def run(options: argparse.Namespace) -> int:
    """Print the answer, the expected one, the best of a beam search, and how sure the model was at each step."""
    strategy = strategy_of(options)
    loaded = SavedRuns(options.checkpoints or DEFAULT_ROOT).loaded(options.run)
    interventions = _edits_of(options, loaded)
    seen = inspect(
        loaded.model,
        loaded.task,
        options.input,
        strategy=strategy,
        prefix=options.prefix,
        interventions=interventions,
    )
    text = loaded.task.text
    print(f"input     {' '.join(seen.symbols)}")
    if seen.expected is None:
        print(f"output    {text(seen.output)}")
    else:
        print(f"output    {text(seen.output)}  ({'correct' if seen.correct else 'wrong'})")
        print(f"expected  {text(seen.expected)}")
    if seen.note:
        print(f"note      {seen.note}")
    if strategy != GREEDY:
        print(f"strategy  {strategy_in_words(strategy)}")
    if str(interventions):
        print(f"heads     {interventions}")
    for place, answer in enumerate(seen.ranked, start=1):
        end = "" if answer.stopped else "  (did not stop)"
        print(f"best {place:4}  {' '.join(answer.output)}  score {answer.score:.4f}, log P {answer.log_prob:.4f}{end}")
    for number, step in enumerate(seen.steps, start=1):
        print(f"step {number:4}  {_step_in_words(step)}")
    if options.json:
        print(json.dumps(as_json(seen)))
    return 0


def _edits_of(options: argparse.Namespace, loaded: LoadedRun) -> Interventions:
    """Read what is to be done to the run's heads; InputError if it cannot be done."""
    if options.ablate_with == "mean" and not options.ablate:
        raise InputError("--ablate-with=mean is about heads that are knocked out, so it needs --ablate")
    return read_edits(
        loaded.model,
        loaded.task,
        ablate=options.ablate,
        force=options.pattern,
        ablation=options.ablate_with,
    )


def _step_in_words(step: Step) -> str:
    """List the likeliest tokens; what was produced instead of the likeliest comes first."""
    likely = "  ".join(f"{token} {probability:.1%}" for token, probability in step.candidates)
    if not step.forced and step.produced == step.candidates[0][0]:
        return likely
    return f"{step.produced} {step.probability:.1%} {'forced' if step.forced else 'chosen'}  of  {likely}"


def as_json(seen: Inspection) -> dict:
    """Return a decode as plain data: input, output, each step's token and probability.

    ``expected`` and ``correct`` are None where many answers are as good.
    """
    interventions = seen.interventions
    return {
        "input": " ".join(seen.symbols),
        "output": " ".join(seen.output),
        "expected": None if seen.expected is None else " ".join(seen.expected),
        "correct": seen.correct,
        "stopped": seen.stopped,
        "note": seen.note,
        "strategy": seen.strategy.model_dump(),
        "ablate": [str(head) for head in interventions.ablated],
        "ablation": interventions.ablation if interventions.ablated else None,
        "force": {str(head): str(pattern) for head, pattern in interventions.forced},
        "steps": [
            {
                "token": step.produced,
                "probability": step.probability,
                "forced": step.forced,
                "candidates": [{"token": token, "probability": probability} for token, probability in step.candidates],
            }
            for step in seen.steps
        ],
        "n_best": [
            {
                "output": " ".join(answer.output),
                "score": answer.score,
                "log_prob": answer.log_prob,
                "stopped": answer.stopped,
            }
            for answer in seen.ranked
        ],
    }
