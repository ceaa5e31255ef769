"""``bench agreement``: whether patching, ablation and attribution agree on what a reversed digit depends on.

A pair is a held-out input and a copy of it with one digit replaced, both drawn at random. The step is the one that
should produce this digit. The question is why the model predicts its token there and not the other digit. The alignment
head is the cross-attention head of the last decoder layer with the most attention on the correct source token, measured
on other held-out inputs.
"""

import argparse
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, cast

import torch

from core.cli.arguments import preset_from
from core.config import Preset
from core.config.counting import percent
from core.config.tasks import DigitsConfig
from core.generation import generate
from core.interpret.attribution.activation_patching import ActivationPatching, activation_patching
from core.interpret.attribution.direct_logit_attribution import direct_logit_attribution
from core.interpret.attribution.input_gradients import gradient_times_input, integrated_gradients, saliency
from core.interpret.attribution.occlusion import occlusion
from core.interpret.attribution.prediction import Prediction, prediction_at
from core.interpret.attribution.value_zeroing import value_zeroing
from core.interpret.head_scores import best_head_of_layer, score_heads
from core.interpret.interventions import Interventions
from core.models import forward_with_attention
from core.models.hooks import hooks
from core.models.layers import EncoderLayer
from core.models.seq2seq import Head, Seq2Seq
from core.models.transformer import Transformer
from core.storage.errors import InputError
from core.tasks import Task, fixed_pairs
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID, EOS_ID
from core.training.loop import train

SCORING_SEQUENCES = 200  # for the choice of the alignment head; the pairs come from others
TARGET = 0.95
# What must hold for a pair to count.
CRITERIA = {
    "a1": "the alignment head's largest weight is on the changed digit",
    "a2": "patching the encoder's output there restores the predicted token, and at no other position",
    "a3": "the same patch restores the whole answer, decoded greedily",
    "a4": "a2 for the residual stream after the embedding and every sublayer of the encoder",
    "b1": "with the alignment head ablated (zeros), the patch of a2 restores nothing: same token with and without it",
    "b2": "with all cross-attention heads of its layer ablated, it restores nothing",
    "c1": "occlusion gives the changed digit the largest value of the input's digits",
    "c2": "value zeroing in the alignment head's layer does",
    "c3": "saliency does",
    "c4": "integrated gradients do",
    "c5": "gradient × input does",
    "d1": "direct logit attribution gives the alignment head the largest value of all heads",
    "d2": "direct logit attribution gives its layer's cross-attention heads the largest sum of all attention layers",
    "d3": "patching its layer's cross-attention heads together restores most of all attention layers",
    "d4": "patching single heads restores most with the alignment head",
}


@dataclass(frozen=True)
class Pair:
    """A clean input, and a copy with another digit at a position, from 0."""

    symbols: tuple[str, ...]
    corrupted: tuple[str, ...]
    position: int


@dataclass
class Agreement:
    """The criteria of one trained model.

    Attributes:
        head: the alignment head.
        counts: number of pairs that meet each criterion.
        removed: per pair, the share of the logit difference removed by ablating the alignment head.
        seconds: of all methods together, wall time per pair.
    """

    seed: int
    head: Head
    pairs: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CRITERIA, 0))
    removed: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def fraction(self, name: str) -> float:
        """Return the fraction of pairs that meet a criterion, 0-1."""
        return self.counts[name] / self.pairs


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train with ``options.seeds`` consecutive seeds and measure each model on ``options.pairs`` pairs."""
    if options.pairs < 1 or options.seeds < 1:
        raise InputError(f"--pairs={options.pairs} and --seeds={options.seeds} must be at least 1")
    preset = preset_from(options)
    found = []
    for seed in range(preset.training.seed, preset.training.seed + options.seeds):
        found.append(measure(preset.with_changes({"training.seed": seed}), options.pairs))
        print(f"seed {seed}: alignment head {found[-1].head}, {found[-1].seconds:.2f} s per pair", flush=True)
    print(f"\n{preset.name}, {options.pairs} pairs each: pairs that meet a criterion")
    for name, meaning in CRITERIA.items():
        fractions = "  ".join(f"{each.fraction(name):6.1%}" for each in found)
        mark = "  " if all(each.fraction(name) >= TARGET for each in found) else "* "
        print(f"{mark}{name}  {fractions}  {meaning}")
    print(f"*: below {percent(TARGET, 0)} with some seed")
    removed = ", ".join(f"{percent(mean(each.removed), 0)}" for each in found)
    print(f"logit difference that ablating the alignment head removes, mean: {removed}")
    return {
        "preset": preset.name,
        "pairs": options.pairs,
        "criteria": CRITERIA,
        "seeds": [
            {
                "seed": each.seed,
                "head": str(each.head),
                "fractions": {name: each.fraction(name) for name in CRITERIA},
                "removed": mean(each.removed),
            }
            for each in found
        ],
    }


def measure(preset: Preset, num_pairs: int) -> Agreement:
    """Train a preset to its end and measure the model.

    Raises:
        InputError: the benchmark does not apply to the preset's task or model.
    """
    state = new_state(preset)
    is_reversal = isinstance(preset.task, DigitsConfig) and preset.task.transform == "reverse"
    if not isinstance(state.model, Transformer) or not is_reversal:
        raise InputError(f"preset={preset.name} must be an encoder-decoder Transformer that reverses digits")
    for _ in train(state):
        pass
    state.model.eval()
    return agreement(state.model, state.task, num_pairs, seed=preset.training.seed)


@torch.no_grad()
def agreement(model: Transformer, task: Task, num_pairs: int, *, seed: int) -> Agreement:
    """Measure all criteria on pairs drawn with a seed."""
    result = Agreement(seed, alignment_head(model, task))
    started = time.perf_counter()
    for pair in draw_pairs(task, num_pairs, seed=seed):
        met, removed = examine(model, task, pair, result.head)
        result.pairs += 1
        result.removed.append(removed)
        for name in CRITERIA:
            result.counts[name] += met[name]
    result.seconds = (time.perf_counter() - started) / result.pairs
    return result


def alignment_head(model: Seq2Seq, task: Task) -> Head:
    """Return the cross-attention head of the last layer with the most attention on the correct source token."""
    pairs = fixed_pairs(task, SCORING_SEQUENCES, split="test")
    result = generate(model, pairs.src, max_steps=pairs.tgt_out.shape[1], need_weights=True)
    scores = score_heads(task, pairs, result)
    best = best_head_of_layer(scores, layer=scores[-1].layer)
    return Head("cross", best.layer, best.head)


def draw_pairs(task: Task, count: int, *, seed: int) -> Iterator[Pair]:
    """Yield pairs of held-out inputs, with a random digit at a random position replaced by a random other one."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    inputs = fixed_pairs(task, SCORING_SEQUENCES + count, split="test")[SCORING_SEQUENCES:]
    for ids in inputs.src.tolist():
        symbols = tuple(task.src_vocab.decode([each for each in ids if each > EOS_ID]))
        position = chance.randrange(len(symbols))
        other = chance.choice([each for each in task.src_vocab.symbols if each != symbols[position]])
        yield Pair(symbols, (*symbols[:position], other, *symbols[position + 1 :]), position)


def examine(model: Transformer, task: Task, pair: Pair, head: Head) -> tuple[dict[str, bool], float]:
    """Return which criteria a pair meets, and the share of the logit difference removed by ablating the head."""
    step, column = len(pair.symbols) - 1 - pair.position, pair.position + 1
    clean = prediction_at(model, task, pair.symbols, step=step)
    prediction = prediction_at(model, task, pair.symbols, step=step, foil=pair.corrupted[pair.position])
    patching = activation_patching(model, task, prediction, corrupted=pair.corrupted)
    _, maps = forward_with_attention(model, prediction.src, prediction.tgt_in)
    assert maps.cross is not None  # noqa: S101 - a Transformer has it
    reads = int(maps.cross[head.layer - 1, 0, head.head - 1, -1].argmax())
    layer = tuple(each for each in model.heads if (each.block, each.layer) == ("cross", head.layer))
    restored = patching.grid("residual stream", "encoder").is_restored
    only_there = [row.nonzero().flatten().tolist() == [reads] for row in restored]
    answer = _patched_answer(model, task, pair, prediction, reads)
    met = {
        "a1": reads == column,
        "a2": only_there[-1],
        "a3": answer == list(clean.answer),
        "a4": all(only_there),
        "b1": not _still_restores(model, task, pair, prediction, reads, (head,)),
        "b2": not _still_restores(model, task, pair, prediction, reads, layer),
    }
    with Interventions((head,)).applied_to(model):
        without = prediction.score(model(prediction.src, prediction.tgt_in)[0, -1]).item()
    met |= _tokens_named(model, prediction, column, head) | _heads_named(model, prediction, patching, head)
    return met, (patching.clean_difference - without) / patching.clean_difference


@contextmanager
def _patched(model: Transformer, prediction: Prediction, column: int) -> Iterator[None]:
    """Put the encoder's output of the clean input, at one source position, into the calls inside the block."""
    point = cast(EncoderLayer, model.encoder_layers[-1]).hook_resid_post.name
    clean: list[torch.Tensor] = []
    with hooks({point: clean.append}):
        model.encode(prediction.src)

    def put(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, column] = clean[0][:, column]
        return x

    with hooks({point: put}):
        yield


def _source(task: Task, pair: Pair) -> torch.Tensor:
    """Return the changed input, (1, S)."""
    return torch.tensor([[BOS_ID, *task.src_vocab.encode(pair.corrupted), EOS_ID]])


def _patched_answer(model: Transformer, task: Task, pair: Pair, prediction: Prediction, column: int) -> list[int]:
    """Return the greedy answer to the changed input with the patch."""
    with _patched(model, prediction, column):
        return generate(model, _source(task, pair), max_steps=model.max_seq_len).tokens[0].tolist()


def _still_restores(
    model: Transformer, task: Task, pair: Pair, prediction: Prediction, column: int, ablated: tuple[Head, ...]
) -> bool:
    """Return whether, with heads ablated, the model predicts the token with the patch but not without it."""
    src = _source(task, pair)
    with Interventions(ablated).applied_to(model):
        without = int(model(src, prediction.tgt_in)[0, -1].argmax())
        with _patched(model, prediction, column):
            patched = int(model(src, prediction.tgt_in)[0, -1].argmax())
    return patched == prediction.target != without


def _tokens_named(model: Transformer, prediction: Prediction, column: int, head: Head) -> dict[str, bool]:
    """Return whether each attribution gives the changed digit the largest value; BOS and EOS are ignored."""
    values = [
        occlusion(model, prediction).source,
        cast(torch.Tensor, value_zeroing(model, prediction).cross)[head.layer - 1, -1],
        saliency(model, prediction).source,
        integrated_gradients(model, prediction).source,
        gradient_times_input(model, prediction).source,
    ]
    return {f"c{number}": int(each[1:-1].argmax()) == column - 1 for number, each in enumerate(values, start=1)}


def _heads_named(
    model: Transformer, prediction: Prediction, patching: ActivationPatching, head: Head
) -> dict[str, bool]:
    """Return whether attribution and patching of heads name the alignment head, or its layer, first."""
    direct = direct_logit_attribution(model, prediction).heads
    direct_layers: dict[tuple[str, int], float] = {}
    for each, logit in direct.items():
        direct_layers[each.block, each.layer] = direct_layers.get((each.block, each.layer), 0.0) + logit
    patched: dict[Head, float] = {}
    patched_layers: dict[tuple[str, int], float] = {}
    for grid in (grid for grid in patching.grids if grid.name == "heads"):
        for layer, (shares, whole) in enumerate(zip(grid.restored.tolist(), grid.whole.tolist(), strict=True), start=1):
            patched_layers[grid.block, layer] = whole
            patched |= {Head(grid.block, layer, number): share for number, share in enumerate(shares, start=1)}
    return {
        "d1": max(direct, key=lambda each: direct[each]) == head,
        "d2": max(direct_layers, key=lambda each: direct_layers[each]) == (head.block, head.layer),
        "d3": max(patched_layers, key=lambda each: patched_layers[each]) == (head.block, head.layer),
        "d4": max(patched, key=lambda each: patched[each]) == head,
    }
