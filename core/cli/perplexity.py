"""``perplexity``: the perplexity of a run on held-out text, and of n-gram models fit to the same training text."""

import argparse
import json
import math

from core.evaluation.accuracy import perplexity, score_references
from core.evaluation.ngram import MAX_ORDER, NGram
from core.runs import DEFAULT_ROOT
from core.runs.run import Runs
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks import fixed_pairs


def run(options: argparse.Namespace) -> int:
    """Print the perplexity per token, EOS included, of the run and of n-gram models on the same test lines."""
    if not 1 <= options.order <= MAX_ORDER:
        raise InputError(f"--order={options.order} must be from 1 to {MAX_ORDER}")
    loaded = Runs(options.checkpoints or DEFAULT_ROOT)[options.run].trained()
    task, summary = loaded.task, loaded.preset.task.summary
    known, held_out = task.lines("train"), task.lines("test")
    if not known:
        raise InputError(f"run={short_repr(options.run)} does not model text; its task is to {summary}")
    loss = score_references(loaded.model, fixed_pairs(task, len(held_out), split="test")).loss
    tokens = sum(len(line) + 1 for line in held_out)
    print(f"run {loaded.run} ({loaded.preset.name}), best weights, from step {loaded.step}: {summary}")
    print(f"{len(held_out):,} held-out lines of {tokens:,} tokens, EOS included; trained on {len(known):,} lines")
    print(f"the run         {perplexity(loss):9.4f}  per token, {loss:.4f} nats")
    losses = {}
    for order in range(1, options.order + 1):
        losses[order] = NGram(known, order=order, num_tokens=len(task.tgt_vocab.symbols) + 1).loss(held_out)
        print(f"{order}-grams         {math.exp(losses[order]):9.4f}  per token, {losses[order]:.4f} nats")
    if options.json:
        ngrams = {str(order): math.exp(loss) for order, loss in losses.items()}
        print(json.dumps({"run": loaded.run, "lines": len(held_out), "perplexity": perplexity(loss), "ngrams": ngrams}))
    return 0
