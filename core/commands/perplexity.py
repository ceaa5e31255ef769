"""``perplexity``: how well a run foresees held-out text, beside a model of counts that learned the same text."""

import argparse
import json
import math

from core.errors import InputError
from core.evaluation import evaluate
from core.metrics.ngram import MAX_ORDER, NGram
from core.run_folder import DEFAULT_ROOT
from core.runs import Runs
from core.tasks import fixed_pairs


def run(options: argparse.Namespace) -> int:
    """Print the perplexity per token, EOS counted, of the run and of n-grams up to an order on the same test lines."""
    if not 1 <= options.order <= MAX_ORDER:
        raise InputError(f"--order={options.order} must be from 1 to {MAX_ORDER}")
    published = Runs(options.checkpoints or DEFAULT_ROOT).published(options.run)
    task, summary = published.task, published.preset.task.summary
    known, held_out = task.lines("train"), task.lines("test")
    if not known:
        raise InputError(f"run={options.run[:60]!r} has the task to {summary}, which is not modelling text")
    own = evaluate(published.model, fixed_pairs(task, len(held_out), split="test"))
    tokens = sum(len(line) + 1 for line in held_out)
    print(f"run {published.run} ({published.preset.name}), best weights, from step {published.step}: {summary}")
    print(f"{len(held_out):,} held-out lines of {tokens:,} tokens, EOS counted; learned from {len(known):,} lines")
    print(f"the run         {own.perplexity:9.4f}  per token, {own.loss:.4f} nats")
    losses = {}
    for order in range(1, options.order + 1):
        losses[order] = NGram(known, order=order, num_tokens=len(task.tgt_vocab.symbols) + 1).loss(held_out)
        print(f"{order}-grams         {math.exp(losses[order]):9.4f}  per token, {losses[order]:.4f} nats")
    if options.json:
        ngrams = {str(order): math.exp(loss) for order, loss in losses.items()}
        print(
            json.dumps({"run": published.run, "lines": len(held_out), "perplexity": own.perplexity, "ngrams": ngrams})
        )
    return 0
