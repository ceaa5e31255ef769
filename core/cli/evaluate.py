"""``evaluate``: measure a run on held-out test sequences that no training and no model choice has seen."""

import argparse
import json
import time

from core.cli.strategy_options import strategy_in_words, strategy_of
from core.evaluation.accuracy import Evaluation, evaluate, exact_match_alone
from core.evaluation.bleu import Bleu, bleu_of
from core.evaluation.error_rates import ErrorRates, error_rates_of
from core.generation import GREEDY, Strategy
from core.interpret import HeadScore, best_of_layer
from core.models import count_parameters
from core.reports.report import measure
from core.runs import DEFAULT_ROOT
from core.runs.load import LoadedRun, SavedRuns
from core.storage.errors import InputError
from core.tasks import fixed_pairs

MAX_SEQUENCES = 1_000_000
SCORED_SEQUENCES = 1_000  # plenty for a mean


def run(options: argparse.Namespace) -> int:
    """Print exact match, token accuracy, loss, BLEU, and how well the last layer's heads point at their source."""
    check_sequences(options.sequences)
    strategy = strategy_of(options)
    loaded = SavedRuns(options.checkpoints or DEFAULT_ROOT).loaded(options.run)
    pairs = fixed_pairs(loaded.task, options.sequences, split="test")
    started = time.perf_counter()
    evaluation = evaluate(loaded.model, pairs, strategy=strategy)
    seconds = time.perf_counter() - started
    alone = exact_match_alone(loaded.model, pairs, strategy=strategy)
    scores = measure(loaded.model, loaded.task, pairs[:SCORED_SEQUENCES]).head_scores()
    bleu = bleu_of(loaded.model, loaded.task, pairs)
    rates = error_rates_of(loaded.model, loaded.task, pairs, strategy=strategy)
    _print(loaded, evaluation, alone, scores, bleu, strategy)
    if rates:
        _print_rates(rates)
    if options.json:
        said = _as_json(loaded, evaluation, alone, scores, bleu, seconds)
        print(json.dumps(said | {"error_rates": _rates_as_json(rates), "strategy": strategy.model_dump()}))
    return 0


def check_sequences(sequences: int, *, option: str = "--sequences") -> None:
    """Raise InputError unless that many can be asked for."""
    if not 1 <= sequences <= MAX_SEQUENCES:
        raise InputError(f"{option}={sequences} must be from 1 to {MAX_SEQUENCES}")


def _print(
    loaded: LoadedRun,
    evaluation: Evaluation,
    alone: float,
    scores: list[HeadScore],
    bleu: Bleu | None,
    strategy: Strategy,
) -> None:
    print(f"run {loaded.run} ({loaded.preset.name}), best weights, from step {loaded.step}")
    print(f"parameters      {count_parameters(loaded.model):9,}")
    if strategy != GREEDY:
        print(f"written by      {strategy_in_words(strategy)}")
    print(f"exact match     {evaluation.exact_match:9.4%}  of {evaluation.sequences} held-out sequences, free-running")
    print(f"  alone         {alone:9.4%}  of the same, each by itself: without padding behind it")
    if loaded.task.open_ended:
        print("                           of which nothing follows: many answers are as good as the reference")
    print(f"token accuracy  {evaluation.token_accuracy:9.4%}  teacher-forced")
    print(f"loss            {evaluation.loss:9.6f}  nats per token, perplexity {evaluation.perplexity:.4f}")
    if bleu:
        print(f"BLEU            {bleu.score:9.4f}  of the same, each by itself; {bleu.signature}")
    if scores:
        best = best_of_layer(scores, max(score.layer for score in scores))
        print(
            f"attention over the input, last layer: head {best.head} puts {best.share:.1%} of it on the true token "
            f"(uniform attention: {best.uniform:.1%}); its largest weight is there in {best.hits:.1%} of steps"
        )


def _print_rates(rates: ErrorRates) -> None:
    of_answers, of_tokens = rates.names
    print(f"{of_answers:15} {rates.answers:9.2%}  of the same, answered by none of their references")
    print(f"{of_tokens:15} {rates.tokens:9.2%}  interventions to the nearest reference, per token of it")


def _rates_as_json(rates: ErrorRates | None) -> dict[str, float] | None:
    return rates and {
        name: round(rate, 6) for name, rate in zip(rates.names, (rates.answers, rates.tokens), strict=True)
    }


def _as_json(
    loaded: LoadedRun,
    evaluation: Evaluation,
    alone: float,
    scores: list[HeadScore],
    bleu: Bleu | None,
    seconds: float,
) -> dict:
    return {
        "run": loaded.run,
        "preset": loaded.preset.name,
        "parameters": count_parameters(loaded.model),
        "sequences": evaluation.sequences,
        "exact_match": evaluation.exact_match,
        "exact_match_alone": alone,
        "token_accuracy": evaluation.token_accuracy,
        "loss": evaluation.loss,
        "perplexity": evaluation.perplexity,
        "bleu": bleu and {"score": round(bleu.score, 4), "signature": bleu.signature},
        "seconds": round(seconds, 3),
        "cross_attention": [
            {
                "layer": score.layer,
                "head": score.head,
                "share_on_true_source": round(score.share, 4),
                "largest_on_true_source": round(score.hits, 4),
                "uniform": round(score.uniform, 4),
            }
            for score in scores
        ],
    }
