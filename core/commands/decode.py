"""``decode``: let a run answer one input."""

import argparse
import json

from core.inspection import Inspection, inspect
from core.run_folder import DEFAULT_ROOT
from core.runs import Runs


def run(options: argparse.Namespace) -> int:
    """Print the answer, the expected one, and how sure the model was at each step."""
    published = Runs(options.checkpoints or DEFAULT_ROOT).published(options.run)
    seen = inspect(published.model, published.task, options.input)
    text = published.task.text
    print(f"input     {' '.join(seen.symbols)}")
    print(f"output    {text(seen.output)}  ({'correct' if seen.correct else 'wrong'})")
    print(f"expected  {text(seen.expected)}")
    if seen.note:
        print(f"note      {seen.note}")
    for number, step in enumerate(seen.steps, start=1):
        likely = "  ".join(f"{token} {probability:.1%}" for token, probability in step.candidates)
        print(f"step {number:3}  {likely}")
    if options.json:
        print(json.dumps(as_json(seen)))
    return 0


def as_json(seen: Inspection) -> dict:
    """Return a decode as plain data: input, output, expected, correct, and each step's token and probability."""
    return {
        "input": " ".join(seen.symbols),
        "output": " ".join(seen.output),
        "expected": " ".join(seen.expected),
        "correct": seen.correct,
        "stopped": seen.stopped,
        "note": seen.note,
        "steps": [
            {
                "token": step.produced,
                "probability": step.candidates[0][1],
                "candidates": [{"token": token, "probability": probability} for token, probability in step.candidates],
            }
            for step in seen.steps
        ],
    }
