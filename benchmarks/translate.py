"""``bench translate``: sentences per second of ``translate``, compared with CTranslate2 with the same weights.

Both decode ids on one thread in float32, greedily and with a beam without length penalty, which the two define
differently. Each batches the sources in its own way, or both take batches of the same numbers of sources. Times are
processor time, which other programs affect less. Without ``--run`` the model is untrained, of the size of a small
translation model, and changed so that its outputs depend on their sources and end at different lengths.
"""

import argparse
import importlib.util
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.interleaved_timing import median_ratio, time_interleaved
from core.config.sections import TransformerConfig
from core.generation import Beam, Greedy, Strategy
from core.generation.translation import decode_sources
from core.models.transformer import Transformer
from core.runs import DEFAULT_ROOT
from core.runs.run import Runs
from core.storage.errors import InputError
from core.tasks import Batch, Task, fixed_pairs
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID, UNK_ID

BASELINE_BATCH_SIZE = 32  # sources; CTranslate2's speed differs by less than a tenth with 16 and 64
# Scales for the weights of an untrained model; otherwise its outputs would hardly depend on the sources.
GAINS = {"cross_attention.w_q": 4, "cross_attention.w_v": 6, "cross_attention.w_o": 6, "output.weight": 10}
VOCAB_SIZE, MAX_STEPS, LENGTHS = 4_000, 64, (3, 40)


@dataclass(frozen=True)
class TranslationSpeed:
    """Measurements with one strategy and way of batching: medians over interleaved rounds.

    Attributes:
        batch_size: sources that both decode together; None if each batches in its own way.
        sentences_per_second: of ours.
        mean_tokens: length of the outputs, without EOS.
        ratio: sentences per second of ours divided by those of CTranslate2; None without ``ctranslate2``.
        same: fraction of the sentences for which both give the same tokens.
    """

    strategy: str
    batch_size: int | None
    sentences_per_second: float
    mean_tokens: float
    ratio: float | None = None
    same: float | None = None


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print a table."""
    given = {"sentences": [options.sentences], "rounds": [options.rounds], "batch-sizes": options.batch_sizes or []}
    for name, counts in given.items():
        if any(count < 1 for count in counts):
            raise InputError(f"--{name}={min(counts)} must be at least 1")
    if options.run:
        loaded = Runs(options.checkpoints or DEFAULT_ROOT)[options.run].trained()
        model = loaded.model
        if not isinstance(model, Transformer):
            raise InputError(f"--run={options.run[:60]} must be an encoder-decoder Transformer")
        sources = sources_of(loaded.task, options.sentences)
    else:
        model, sources = untrained_model(), random_sources(options.sentences)
    strategies: dict[str, Strategy] = {
        "greedy": Greedy(),
        f"beam {options.beam_size}": Beam(beam_size=options.beam_size, length_penalty=0),
    }
    speeds = []
    print(f"{len(sources)} sentences, 1 thread, float32, processor time, medians of {options.rounds} rounds")
    for speed in measure(model, sources, strategies, options.batch_sizes or [None], rounds=options.rounds):
        speeds.append(speed)
        batches = "own batches" if speed.batch_size is None else f"batches of {speed.batch_size}"
        print(
            f"{speed.strategy:8} {batches:16} {speed.sentences_per_second:8.1f} sentences/s "
            f"of {speed.mean_tokens:.1f} tokens",
            end="",
        )
        if speed.ratio is None:
            print("; to compare with CTranslate2: pip install -c requirements-extras.txt -e '.[parity]'")
        else:
            print(f", {speed.ratio:.2f} × CTranslate2; {speed.same:.1%} have the same tokens", flush=True)
    return {"run": options.run, "sentences": len(sources), "strategies": [asdict(speed) for speed in speeds]}


def measure(
    model: Transformer,
    sources: list[list[int]],
    strategies: Mapping[str, Strategy],
    batch_sizes: Sequence[int | None],
    *,
    rounds: int,
) -> Iterator[TranslationSpeed]:
    """Decode sources with every strategy and batch size, and with CTranslate2 if it is installed."""
    baseline = None
    if importlib.util.find_spec("ctranslate2"):
        from benchmarks import ctranslate2_baseline

        translator = ctranslate2_baseline.to_ctranslate2(model)
        baseline = partial(ctranslate2_baseline.translate, translator, sources, max_steps=model.max_seq_len)
    for name, strategy in strategies.items():
        for batch_size in batch_sizes:
            decode = partial(decode_sources, model, sources, strategy=strategy, batch_size=batch_size)
            outputs = decode()
            mean_tokens = sum(map(len, outputs)) / len(outputs)
            if baseline is None:
                (seconds,) = time_interleaved([decode], rounds=rounds, clock=time.process_time, warm_up=False)
                yield TranslationSpeed(name, batch_size, len(sources) / median(seconds), mean_tokens)
                continue
            decode_baseline = partial(
                baseline, beam_size=strategy.sequences_per_source, batch_size=batch_size or BASELINE_BATCH_SIZE
            )
            same = sum(ours == theirs for ours, theirs in zip(outputs, decode_baseline(), strict=True)) / len(outputs)
            seconds, baseline_seconds = time_interleaved(
                [decode, decode_baseline], rounds=rounds, clock=time.process_time, warm_up=False
            )
            ratio = median_ratio(baseline_seconds, seconds)
            yield TranslationSpeed(name, batch_size, len(sources) / median(seconds), mean_tokens, ratio, same)


def sources_of(task: Task, count: int) -> list[list[int]]:
    """Return test sources of a task without BOS and EOS, and training sources if there are not enough."""
    sources = _ids(fixed_pairs(task, count, split="test"))
    if len(sources) < count:
        sources += _ids(fixed_pairs(task, count - len(sources), split="train"))
    return sources


def _ids(pairs: Batch) -> list[list[int]]:
    return [[token for token in row if token not in (PAD_ID, BOS_ID, EOS_ID)] for row in pairs.src.tolist()]


def untrained_model() -> Transformer:
    """Return a model with outputs of 1 to ``MAX_STEPS`` tokens."""
    generator = torch.Generator().manual_seed(0)
    config = TransformerConfig(
        d_model=192,
        num_heads=4,
        num_encoder_layers=3,
        num_decoder_layers=3,
        d_ff=768,
        norm="pre",
        activation="gelu",
        dropout=0.0,
        max_seq_len=MAX_STEPS,
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = Transformer(config, VOCAB_SIZE, VOCAB_SIZE).eval()
        for name, parameter in model.named_parameters():
            parameter.mul_(next((gain for part, gain in GAINS.items() if part in name), 1))
        src, tgt_in = (torch.randint(UNK_ID + 1, VOCAB_SIZE, (64, MAX_STEPS), generator=generator) for _ in range(2))
        logits = model(src, tgt_in)
        others = logits.index_fill(2, torch.tensor([EOS_ID]), -torch.inf).amax(dim=-1)
        model.output.bias[EOS_ID] += (others - logits[..., EOS_ID]).quantile(
            0.015
        )  # EOS is chosen in 1.5 % of these steps
        model.output.bias[[PAD_ID, BOS_ID, UNK_ID]] -= 1e4
    return model


def random_sources(count: int) -> list[list[int]]:
    """Return random ids without BOS and EOS."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(*LENGTHS, (count,), generator=generator).tolist()
    return [torch.randint(UNK_ID + 1, VOCAB_SIZE, (length,), generator=generator).tolist() for length in lengths]
