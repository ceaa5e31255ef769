"""Induction scores: 1 for a perfect head, the share of one key for uniform attention, whatever the model reads."""

from functools import partial

import pytest
import torch

from core.config import load_preset
from core.interpret.induction import RepeatedTokens, induction_score, previous_token_score
from core.models import build_model
from core.models.hooks import hooks
from core.tasks import build_task, fixed_pairs
from core.text.vocab import BOS_ID, EOS_ID

MODELS = {
    "BOS between": ("digits-reversal-decoder-only", {}),
    "EOS and BOS between": ("digits-reversal-decoder-only", {"model.source_eos": False}),
    "target continues source": ("recall", {}),
    "several answers": ("recall", {"task.queries": 4, "model.target_bos": False, "model.source_eos": False}),
    "another vocabulary": ("number-words-german", {"model.family": "decoder-only"}),
    "learned positions": ("pattern-completion", {"model.family": "decoder-only", "model.positions": "learned"}),
}


@pytest.fixture(params=MODELS)
def drawn(request):
    """A model and its repeated tokens."""
    name, changes = MODELS[request.param]
    preset = load_preset(name).with_changes(changes)
    task = build_task(preset.task)
    model = build_model(preset.model, task, torch.Generator().manual_seed(0))
    repeated = RepeatedTokens.like(fixed_pairs(task, 32, split="validation"), task, model)
    assert repeated is not None
    return model, repeated


def read_ids(model, repeated: RepeatedTokens, row: int) -> list[int | None]:
    """The ids of the columns of a target's map; None for those that nothing attends to."""
    config = model.config
    src, tgt = repeated.src[row].tolist(), repeated.tgt_in[row].tolist()
    masked = set() if config.source_eos else {len(src) - 1}
    if not config.target_bos:
        tgt[0] = src[-2]
        masked.add(len(src) - 2)
    return [None if at in masked else token for at, token in enumerate([*src, *tgt])]


def key_of(ids: list[int | None], query: int, kind: str) -> int | None:
    """The column that a perfect head attends to; None if it has nothing to attend to."""
    before = [at for at in range(query) if ids[at] is not None]
    if kind == "previous":
        return before[-1] if before else None
    occurrences = [at for at in before if ids[at] == ids[query]]
    return next(at for at in [*before, query] if at > occurrences[-1]) if occurrences else None


def forced(model, repeated: RepeatedTokens, kind: str, pattern: torch.Tensor) -> torch.Tensor:
    """The weights of a head that finds its key among all tokens that the model has read."""
    rows = torch.zeros_like(pattern)
    for row in range(len(pattern)):
        ids = read_ids(model, repeated, row)
        source = len(repeated.src[row])
        is_source = pattern.shape[-1] == source
        if is_source:  # the source's own maps have its last token, whether or not the target attends to it
            ids = repeated.src[row].tolist()
        for query in range(pattern.shape[2]):
            key = key_of(ids, query if is_source else source + query, kind)
            rows[row, :, query, 0 if key is None else key] = 1
    return rows


@pytest.mark.parametrize("kind", ["induction", "previous"])
def test_a_perfect_head_scores_1_and_the_others_do_not(drawn, kind):
    model, repeated = drawn
    perfect = partial(forced, model, repeated, kind)
    name = model.layers[1].self_attention.hook_pattern.name
    with hooks({name: lambda pattern: torch.cat([pattern[:, :1], perfect(pattern)[:, 1:2], pattern[:, 2:]], dim=1)}):
        scores = repeated.scores(model)
    of_kind, other = (scores.induction, scores.previous_token)[:: 1 if kind == "induction" else -1]
    assert of_kind[1, 1] == 1
    assert other[1, 1] < 0.2
    of_kind[1, 1] = 0
    assert (of_kind < 0.5).all()  # heads of an untrained model


def test_the_tokens_are_distinct_repeated_and_within_the_trained_lengths(drawn):
    _, repeated = drawn
    assert (repeated.src[:, 0] == BOS_ID).all()
    assert (repeated.src[:, -1] == EOS_ID).all()
    tokens = torch.cat([repeated.src[:, 1:-1], repeated.tgt_in[:, 1:]], dim=1)
    first, second = tokens.chunk(2, dim=1)
    assert torch.equal(first, second)
    assert all(len(set(row)) == len(row) for row in first.tolist())
    assert first.min() > EOS_ID
    assert len({tuple(row) for row in first.tolist()}) == len(first)  # other sequences, not one 16 times


def test_uniform_attention_scores_the_mean_share_of_one_key(drawn):
    model, repeated = drawn
    with torch.no_grad():
        for layer in model.layers:
            layer.self_attention.w_q.weight.zero_()
            layer.self_attention.w_q.bias.zero_()
    scores = repeated.scores(model)
    ids, source = read_ids(model, repeated, 0), len(repeated.src[0])  # the same columns in every row
    ends = (source - 1, source + 1) if model.config.target_bos else (source - 2, source)
    tokens, shares = [*range(1, ends[0]), *range(ends[1], len(ids))], []
    for query in tokens[len(tokens) // 2 :]:
        (earlier,) = (at for at in tokens if ids[at] == ids[query] and at < query)
        following = next(at for at in range(earlier + 1, len(ids)) if ids[at] is not None)
        if following in tokens:
            shares.append(1 / sum(ids[at] is not None for at in range(query + 1)))
    assert scores.induction.flatten().tolist() == pytest.approx([sum(shares) / len(shares)] * scores.induction.numel())


def test_formulas_on_given_weights():
    follows = torch.tensor([False, True, True, True, True, True])
    weights = torch.zeros(6, 6)
    weights[3, 1], weights[4, 2], weights[5, 3] = 0.2, 0.6, 1.0  # tokens a b c a b c: to b, c and a
    assert induction_score(weights, follows) == pytest.approx(0.6)
    assert previous_token_score(weights, follows) == 0
    apart = torch.tensor([False, True, True, False, True, True])  # BOS before the fourth token
    assert induction_score(weights, apart) == pytest.approx(0.4)
    weights[4, 3] = 1.0
    assert previous_token_score(weights, apart) == pytest.approx(0.25)


def test_models_with_an_encoder_and_short_pairs_have_no_scores(tiny):
    task = build_task(tiny.task)
    pairs = fixed_pairs(task, 32, split="validation")
    assert RepeatedTokens.like(pairs, task, build_model(tiny.model, task, torch.Generator())) is None
    binary = load_preset("digits-reversal-decoder-only").with_changes({"task.base": 2})
    task = build_task(binary.task)
    model = build_model(binary.model, task, torch.Generator())
    assert RepeatedTokens.like(fixed_pairs(task, 32, split="validation"), task, model) is None


def test_scoring_changes_neither_the_model_nor_random_numbers(drawn):
    model, repeated = drawn
    model.train()
    before = torch.get_rng_state()
    first = repeated.scores(model)
    assert model.training
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.induction, repeated.scores(model).induction)
