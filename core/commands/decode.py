"""``decode``: let a run answer one input."""

import argparse
import json

from core.commands.strategy_options import strategy_in_words, strategy_of
from core.decoding import GREEDY
from core.inspection import Inspection, Step, inspect
from core.run_folder import DEFAULT_ROOT
from core.runs import Runs


def run(options: argparse.Namespace) -> int:
    """Print the answer, the expected one, the best of a beam search, and how sure the model was at each step."""
    strategy = strategy_of(options)
    published = Runs(options.checkpoints or DEFAULT_ROOT).published(options.run)
    seen = inspect(published.model, published.task, options.input, strategy=strategy, prefix=options.prefix)
    text = published.task.text
    print(f"input     {' '.join(seen.symbols)}")
    print(f"output    {text(seen.output)}  ({'correct' if seen.correct else 'wrong'})")
    print(f"expected  {text(seen.expected)}")
    if seen.note:
        print(f"note      {seen.note}")
    if strategy != GREEDY:
        print(f"strategy  {strategy_in_words(strategy)}")
    for place, answer in enumerate(seen.ranked, start=1):
        end = "" if answer.stopped else "  (did not stop)"
        print(f"best {place:4}  {' '.join(answer.output)}  score {answer.score:.4f}, log P {answer.log_prob:.4f}{end}")
    for number, step in enumerate(seen.steps, start=1):
        print(f"step {number:4}  {_step_in_words(step)}")
    if options.json:
        print(json.dumps(as_json(seen)))
    return 0


def _step_in_words(step: Step) -> str:
    """List the likeliest tokens; what was produced instead of the likeliest comes first."""
    likely = "  ".join(f"{token} {probability:.1%}" for token, probability in step.candidates)
    if not step.forced and step.produced == step.candidates[0][0]:
        return likely
    return f"{step.produced} {step.probability:.1%} {'forced' if step.forced else 'chosen'}  of  {likely}"


def as_json(seen: Inspection) -> dict:
    """Return a decode as plain data: input, output, expected, correct, and each step's token and probability."""
    return {
        "input": " ".join(seen.symbols),
        "output": " ".join(seen.output),
        "expected": " ".join(seen.expected),
        "correct": seen.correct,
        "stopped": seen.stopped,
        "note": seen.note,
        "strategy": seen.strategy.model_dump(),
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
