"""``evaluate``: evaluate a run on test sequences, which neither training nor model selection has seen."""

import argparse
import json
import time
from dataclasses import asdict
from typing import Any

import pandas as pd

from core.cli.arguments import (
    check_sequences,
    format_strategy,
    loaded_run,
    strategy_from,
)
from core.config.counting import counted, percent
from core.evaluation.accuracy import Evaluation, evaluate
from core.evaluation.breakdown import BreakdownAccuracy, measure_breakdown
from core.evaluation.error_rates import ErrorRates, measure_error_rates
from core.evaluation.headline import headline_of
from core.evaluation.outputs import Outputs, decode_unpadded
from core.evaluation.padding_effect import PaddingEffect, measure_padding_effect
from core.evaluation.produced_tokens import ProducedTokens, produced_tokens
from core.evaluation.translation_quality import TranslationQuality, copying_quality
from core.generation import GREEDY, Strategy
from core.interpret.head_scores import HeadScore, best_head_of_layer
from core.interpret.recorded_outputs import decode_recorded, score_recorded_heads
from core.interpret.trained import Trained
from core.models import count_parameters
from core.models.ensemble import Ensemble
from core.reports.formatting import headline_text, lengths_text
from core.tasks import Batch, fixed_pairs, input_lengths


def run(options: argparse.Namespace) -> int:
    """Print the figures that decide, all others measured of the answers, and how well the best head attends."""
    check_sequences(options.sequences)
    strategy = strategy_from(options)
    loaded = loaded_run(options, options.pairs)
    pairs = fixed_pairs(loaded.task, options.sequences, split="test")
    started = time.perf_counter()
    outputs, steps = _decode_unpadded(loaded, pairs, strategy)
    evaluation = evaluate(loaded.model, pairs, strategy=strategy, task=loaded.task, outputs=outputs)
    seconds = time.perf_counter() - started
    padding = measure_padding_effect(loaded.model, loaded.task, outputs, strategy=strategy)
    produced = produced_tokens(loaded.task, outputs)
    quality, copying = outputs.quality(loaded.task), copying_quality(loaded.task, pairs)
    rates = measure_error_rates(loaded.task, outputs)
    breakdown = measure_breakdown(loaded.model, loaded.task, sequences=options.sequences, strategy=strategy)
    headline = headline_of(loaded.task)
    figures = headline.figures(
        {
            "exact_match": evaluation.exact_match,
            "error_rate": rates.sequence_rate if rates else None,
            "token_error_rate": rates.token_rate if rates else None,
            "bleu": quality.bleu if quality else None,
            "perplexity": evaluation.perplexity,
        }
    )
    lengths = input_lengths(pairs)
    _print_run(loaded, strategy, lengths)
    print(f"result          {headline_text(figures)}")
    _print(loaded, evaluation, padding)
    if scores := score_recorded_heads(steps):
        is_same = strategy == GREEDY and steps.sequence.nunique() == len(pairs)
        _print_attention(loaded, scores, "" if is_same else f" of {counted(steps.sequence.nunique(), 'greedy output')}")
    _print_produced(produced)
    if quality and copying:
        _print_quality(quality, copying)
    if headline.without_bleu:
        print(headline.without_bleu)
    if rates:
        _print_rates(rates)
    if breakdown:
        _print_breakdown(breakdown)
    if options.json:
        result: dict[str, Any] = {
            "headline": [figure.model_dump() for figure in figures],
            "without_bleu": headline.without_bleu,
        }
        result |= _as_json(loaded, evaluation, padding, scores, seconds)
        result |= {
            "input_lengths": lengths,
            "quality": quality and asdict(quality),
            "copying": copying and asdict(copying),
        }
        result |= {"produced_tokens": asdict(produced)}
        result |= {"error_rates": _rates_as_json(rates), "breakdown": breakdown and asdict(breakdown)}
        print(json.dumps(result | {"strategy": strategy.model_dump()}))
    return 0


def _decode_unpadded(loaded: Trained, pairs: Batch, strategy: Strategy) -> tuple[Outputs, pd.DataFrame]:
    """Decode pairs without padding.

    Returns:
        The outputs, and the ``step_table`` of the first pairs, always of greedy outputs; empty for an ensemble, which
        has no heads.
    """
    model, task = loaded.model, loaded.task
    has_heads = not isinstance(model, Ensemble)
    if has_heads and strategy == GREEDY:
        recorded = decode_recorded(model, task, pairs)
        return recorded.outputs, recorded.steps
    # BLEU and error rates read whole outputs; for exact match, the steps of the longest reference are enough.
    is_read_whole = headline_of(task).bleu_tokenizer is not None or task.rate_names is not None
    max_steps = None if is_read_whole else pairs.tgt_out.shape[1]
    outputs = decode_unpadded(model, pairs, strategy=strategy, max_steps=max_steps)
    greedy = decode_recorded(model, task, pairs, only_recorded=True) if has_heads else None
    return outputs, greedy.steps if greedy else pd.DataFrame()


def _print_run(loaded: Trained, strategy: Strategy, lengths: dict[int, int]) -> None:
    of_each = "of each" if isinstance(loaded.model, Ensemble) else f"from step {loaded.step}"
    print(f"run {loaded.run} ({loaded.preset.name}), best weights, {of_each}")
    print(f"parameters      {count_parameters(loaded.model):9,}")
    print(f"test sequences  {_drawn(loaded)}")
    if text := lengths_text(lengths):
        print(f"input lengths   {text}")
    if strategy != GREEDY:
        print(f"strategy        {format_strategy(strategy)}")


def _drawn(loaded: Trained) -> str:
    return f"distinct, held out; training inputs: {loaded.task.sampling}"


def _print(loaded: Trained, evaluation: Evaluation, padding: PaddingEffect) -> None:
    print(
        f"exact match     {percent(evaluation.exact_match, 4):>9}  of {evaluation.sequences} held-out sequences, "
        "free-running, each decoded without padding"
    )
    print(
        f"  padded        {percent(padding.padded, 4):>9}  of the first {padding.sequences}, in padded batches; "
        f"without padding {percent(padding.alone, 4)}"
    )
    if loaded.task.open_ended:
        print("                           not meaningful here: the task has no single reference answer")
    scored = "" if loaded.task.scored_tokens == "tokens" else f"of the {loaded.task.scored_tokens}, "
    print(f"token accuracy  {percent(evaluation.token_accuracy, 4):>9}  {scored}teacher-forced")
    print(f"loss            {evaluation.loss:9.6f}  nats per token, perplexity {evaluation.perplexity:.4f}")
    for name, value in evaluation.metrics.items():
        print(f"{name:15} {value:9.4f}  metric of a plugin, of the outputs that exact match counts")


def _print_attention(loaded: Trained, scores: list[HeadScore], of: str) -> None:
    """Print how well the best head of the last layer attends.

    Args:
        scores: of every head.
        of: the outputs they were measured on; "" if these are the evaluated ones.
    """
    best = best_head_of_layer(scores, max(score.layer for score in scores))
    blocks = {head.block for head in loaded.model.heads}
    kind = "cross" if "cross" in blocks else "self"
    on_source = " on the source" if blocks == {"decoder"} else ""  # such a model also attends to its own output
    print(
        f"{kind}-attention of the last layer: head {best.head} puts {percent(best.attention_mass)} of its attention "
        f"on the correct source token (uniform: {percent(best.uniform_mass)}); its largest weight{on_source} is there "
        f"in {percent(best.argmax_accuracy)} of the steps{of}"
    )


def _print_quality(quality: TranslationQuality, copying: TranslationQuality) -> None:
    for name, score, copied, signature in (
        (quality.bleu_name, quality.bleu, copying.bleu, quality.bleu_signature),
        ("chrF", quality.chrf, copying.chrf, quality.chrf_signature),
    ):
        print(f"{name:15} {score:9.2f}  of the same, independent of the batch; the sources as they are: {copied:.2f}")
        print(f"                           sacrebleu signature {signature}")


def _print_produced(produced: ProducedTokens) -> None:
    missing = len(produced.missing)
    named = f": {produced.listed()}" if missing else ""
    print(
        f"tokens          {missing:9,}  of the {produced.in_references:,} in the references are never produced{named}"
    )


def _print_rates(rates: ErrorRates) -> None:
    of_answers, of_tokens = rates.names
    print(f"{of_answers:15} {percent(rates.sequence_rate, 2):>9}  of the same, decoded to none of their references")
    print(f"{of_tokens:15} {percent(rates.token_rate, 2):>9}  edits to the nearest reference, per token of it")


def _print_breakdown(breakdown: BreakdownAccuracy) -> None:
    print(f"{breakdown.name}: {breakdown.sampling}")
    width = max(25, *(len(group.name) for group in breakdown.groups))
    print(f"  {'exact match':{width}} {percent(breakdown.exact_match, 4):>9}  of {breakdown.sequences}")
    for group in breakdown.groups:
        bleu = "" if group.bleu is None else f", BLEU {group.bleu:.2f}"
        print(f"  {group.name:{width}} {percent(group.exact_match, 4):>9}  of {group.sequences}{bleu}")


def _rates_as_json(rates: ErrorRates | None) -> dict[str, float] | None:
    if rates is None:
        return None
    return {
        name: round(rate, 6) for name, rate in zip(rates.names, (rates.sequence_rate, rates.token_rate), strict=True)
    }


def _as_json(
    loaded: Trained,
    evaluation: Evaluation,
    padding: PaddingEffect,
    scores: list[HeadScore],
    seconds: float,
) -> dict:
    return {
        "run": loaded.run,
        "preset": loaded.preset.name,
        "parameters": count_parameters(loaded.model),
        "sampling": _drawn(loaded),
        "sequences": evaluation.sequences,
        "exact_match": evaluation.exact_match,
        "exact_match_unpadded": evaluation.exact_match,  # promised; the same since nothing else is decoded with padding
        "padding": asdict(padding),
        "token_accuracy": evaluation.token_accuracy,
        "loss": evaluation.loss,
        "perplexity": evaluation.perplexity,
        "metrics": evaluation.metrics,
        "seconds": round(seconds, 3),
        "cross_attention": [
            {
                "layer": score.layer,
                "head": score.head,
                "attention_mass": round(score.attention_mass, 4),
                "argmax_accuracy": round(score.argmax_accuracy, 4),
                "uniform_mass": round(score.uniform_mass, 4),
            }
            for score in scores
        ],
    }
