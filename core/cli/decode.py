"""``decode``: decode one input with a run, with any decoding strategy and any intervention on its heads."""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from core.cli.arguments import format_strategy, strategy_from
from core.config.counting import percent
from core.interpret.inspection import SURENESS, Inspection, Step
from core.runs import DEFAULT_ROOT
from core.runs.run import Runs
from core.storage.errors import InputError

if TYPE_CHECKING:
    pass


def run(options: argparse.Namespace) -> int:
    """Print the output, the expected output, the hypotheses of a beam search, and the probabilities of every step."""
    strategy = strategy_from(options)
    if options.ablate_with == "mean" and not options.ablate:
        raise InputError("--ablate-with=mean needs --ablate")
    trained = Runs(options.checkpoints or DEFAULT_ROOT)[options.run].trained()
    if options.ablate or options.pattern:
        trained = trained.ablate(*options.ablate, ablation=options.ablate_with, patterns=options.pattern)
    seen = trained.decode(options.input, strategy=strategy, prefix=options.prefix)
    text = trained.task.answer_text
    print(f"input     {trained.task.source_text(seen.symbols) if seen.has_subwords else ' '.join(seen.symbols)}")
    if seen.expected is None:
        print(f"output    {text(seen.output)}")
    else:
        print(f"output    {text(seen.output)}  ({'correct' if seen.correct else 'wrong'})")
        print(f"expected  {text(seen.expected)}")
    if seen.note:
        print(f"note      {seen.note}")
    if seen.is_unsure is not None:
        print(f"{'unsure' if seen.is_unsure else 'likely':8}  {SURENESS[seen.is_unsure]}")
    print(f"strategy  {format_strategy(strategy)}")
    if trained.interventions:
        print(f"heads     {trained.interventions}")
    for rank, answer in enumerate(seen.hypotheses, start=1):
        end = "" if answer.stopped else "  (no EOS)"
        output = text(answer.output) if seen.has_subwords else " ".join(answer.output)
        print(f"best {rank:4}  {output}  score {answer.score:.4f}, log P {answer.log_prob:.4f}{end}")
    for number, step in enumerate(seen.steps, start=1):
        print(f"step {number:4}  {_format_step(step, trained.task.token_name)}")
    if options.json:
        print(json.dumps(as_json(seen)))
    return 0


def _format_step(step: Step, name: Callable[[str], str]) -> str:
    """List the most probable tokens; a produced token that is not the most probable one comes first."""
    likely = "  ".join(f"{name(token)} {percent(probability)}" for token, probability in step.candidates)
    if not step.forced and step.produced == step.candidates[0][0]:
        return likely
    return f"{name(step.produced)} {percent(step.probability)} {'forced' if step.forced else 'chosen'}  of  {likely}"


def as_json(seen: Inspection) -> dict:
    """Return a decode as plain data: input, output, and the token and probability of each step.

    With subwords, input and outputs are sentences, and the tokens of the steps are vocabulary pieces. ``expected`` and
    ``correct`` are None if the task has no single reference answer.
    """
    interventions = seen.interventions
    text: Callable[[Sequence[str]], str] = " ".join
    if seen.has_subwords:
        from core.text.pieces import sentence_of

        text = sentence_of
    return {
        "input": text(seen.symbols),
        "output": text(seen.output),
        "expected": None if seen.expected is None else text(seen.expected),
        "correct": seen.correct,
        "stopped": seen.stopped,
        "note": seen.note,
        "unsure": seen.is_unsure,
        "strategy": seen.strategy.model_dump(),
        "ablate": [str(head) for head in interventions.ablated] if interventions else [],
        "ablate_with": interventions.ablation if interventions and interventions.ablated else None,
        "pattern": {str(head): str(pattern) for head, pattern in interventions.patterns} if interventions else {},
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
                "output": text(answer.output),
                "score": answer.score,
                "log_prob": answer.log_prob,
                "stopped": answer.stopped,
            }
            for answer in seen.hypotheses
        ],
    }
