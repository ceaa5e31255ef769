"""Hugging Face's models with our weights score, attend, write and search as ours do.

Length penalties have other formulas, which are one at 0, and rank answers of one length alike.
"""

from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from core.config.sections import Norm
from core.generation import Beam, generate
from core.models import forward_with_attention
from core.models.positions import sinusoidal_positions
from core.models.transformer import Transformer
from core.runs import RunFolder
from core.storage.tensor_file import load_weights
from core.teaching.bugs import new_state
from core.text.vocab import EOS_ID, PAD_ID
from tests.support.scripted_models import make_model, random_sequences, transformer

pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install -c requirements-extras.txt -e '.[parity]'"
)

from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from benchmarks.hugging_face import generate as generate_with_hugging_face
from benchmarks.hugging_face import to_hugging_face

Found = list[list[tuple[tuple[int, ...], float]]]  # of each source, tokens and log-probability, best first

V, STEPS = 13, 12
CLOSE = {"atol": 1e-5, "rtol": 0}
LENGTHS = 2 * [9, 4, 6, 7, 12, 8, 5, 10, 11, 14, 9, 5, 6, 13, 8, 16]
REPOSITORY = Path(__file__).resolve().parents[2]
OPTIONS = [
    {"norm": "post", "src_vocab_size": 11},
    {"norm": "pre"},
    {"norm": "post", "activation": "gelu", "positions": "learned", "tie_embeddings": "output", "src_vocab_size": 11},
    {"norm": "pre", "activation": "gelu", "positions": "none", "tie_embeddings": "all"},
]
EVERY_OPTION = pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))


def build(options: dict) -> Transformer:
    sizes = {"src_vocab_size": V, "tgt_vocab_size": V, "d_model": 16, "d_ff": 32, "num_heads": 4, "max_seq_len": 16}
    model = make_model(Transformer, **sizes | {"num_encoder_layers": 3, "num_decoder_layers": 2} | options).eval()
    for parameter in model.parameters():  # biases other than 0 and norms other than 1, so that a swap shows
        uniform, normal = torch.nn.init.uniform_, torch.nn.init.normal_
        uniform(parameter, 0.5, 1.5) if parameter.dim() == 1 else normal(parameter, std=0.3)
    return model


def until_end(row: torch.Tensor) -> tuple[int, ...]:
    """The tokens up to and with the first EOS, behind which theirs are filled with one thing or another."""
    ids = row.tolist()
    return tuple(ids[: ids.index(EOS_ID) + 1] if EOS_ID in ids else ids)


def found_by_ours(model: Transformer, src: torch.Tensor, *, max_steps: int = STEPS, **settings) -> Found:
    search = generate(model, src, max_steps=max_steps, strategy=Beam(**{"length_penalty": 0.0} | settings)).search
    return [[(each.tokens, each.log_prob) for each in search.hypotheses(row)] for row in range(len(src))]


def found_by_theirs(
    model: Transformer,
    src: torch.Tensor,
    *,
    beam_size: int,
    n_best: int = 1,
    length_penalty: float = 0.0,
    max_steps: int = STEPS,
) -> Found:
    made = generate_with_hugging_face(
        to_hugging_face(model),
        src,
        max_steps=max_steps,
        num_beams=beam_size,
        num_return_sequences=n_best,
        length_penalty=length_penalty,
        early_stopping=True,  # once as many have ended as the beam is wide
        return_dict_in_generate=True,
        output_scores=True,
    )
    lengths = torch.tensor([len(until_end(row)) for row in made.sequences[:, 1:]])
    log_probs = made.sequences_scores * lengths**length_penalty
    found = zip(map(until_end, made.sequences[:, 1:]), log_probs.tolist(), strict=True)
    return [list(islice(found, n_best)) for _ in src]


def assert_same(ours: Found, theirs: Found) -> None:
    for own, other in zip(ours, theirs, strict=True):
        assert [tokens for tokens, _ in own] == [tokens for tokens, _ in other]
        for (tokens, log_prob), (_, theirs_log_prob) in zip(own, other, strict=True):
            assert log_prob == pytest.approx(theirs_log_prob, abs=1e-5 * len(tokens))  # it is a sum over them


# --- scores -----------------------------------------------------------------------------------------------------


@EVERY_OPTION
def test_logits_are_the_same(options):
    model = build(options)
    src, tgt = random_sequences([9, 4, 6], vocab_size=11), random_sequences([8, 8, 8])
    expected = to_hugging_face(model)(
        input_ids=src, attention_mask=(src != PAD_ID).long(), decoder_input_ids=tgt
    ).logits
    assert_close(model(src, tgt), expected, **CLOSE)


def test_their_sines_are_ours_in_another_order():
    theirs = MarianSinusoidalPositionalEmbedding(64, 16).create_weight()
    ours = sinusoidal_positions(64, 16)
    assert_close(torch.cat([ours[:, 0::2], ours[:, 1::2]], dim=1), theirs, **CLOSE)


@EVERY_OPTION
def test_logits_of_cached_steps_are_the_same(options):
    model = build(options)
    theirs = to_hugging_face(model)
    src, tgt = random_sequences([9, 4, 6], vocab_size=11), random_sequences([8, 8, 8])
    mask = (src != PAD_ID).long()
    memory, encoded = model.encode(src), theirs.get_encoder()(input_ids=src, attention_mask=mask)
    cache = their_cache = None
    for token in tgt.split(1, dim=1):
        step = model.decode(token, memory, cache)
        their_step = theirs(
            encoder_outputs=encoded,
            attention_mask=mask,
            decoder_input_ids=token,
            past_key_values=their_cache,
            use_cache=True,
        )
        assert_close(step.logits, their_step.logits, **CLOSE)
        cache, their_cache = step.cache, their_step.past_key_values


@EVERY_OPTION
def test_attention_maps_are_the_same(options):
    model = build(options)
    theirs = to_hugging_face(model)
    theirs.set_attn_implementation("eager")
    src, tgt = random_sequences([9, 4, 6], vocab_size=11), random_sequences([8, 8, 8])
    seen = theirs(input_ids=src, attention_mask=(src != PAD_ID).long(), decoder_input_ids=tgt, output_attentions=True)
    _, maps = forward_with_attention(model, src, tgt)
    assert_close(maps.encoder, torch.stack(seen.encoder_attentions), **CLOSE)
    assert_close(maps.decoder, torch.stack(seen.decoder_attentions), **CLOSE)
    assert_close(maps.cross, torch.stack(seen.cross_attentions), **CLOSE)


# --- answers ----------------------------------------------------------------------------------------------------


def shipped(noise: float = 0.0) -> Transformer:
    """The model that ships, or the same with noise on its weights, which makes it unsure."""
    folder = RunFolder(REPOSITORY / "checkpoints", "digits-reversal-shipped")
    model = new_state(folder.read_preset()).model
    load_weights(folder.best, model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * weight.std(), alpha=noise)
    return model.eval()


def endless(norm: Norm) -> Transformer:
    """A random model that never writes EOS."""
    model = transformer(norm=norm)
    with torch.no_grad():
        model.output.bias[EOS_ID] = -100
    return model


WRITERS = {"shipped": shipped, "shaken": lambda: shipped(0.4), "random-pre": lambda: transformer(norm="pre")}


@pytest.mark.parametrize("writer", WRITERS)
def test_greedy_answers_are_the_same_token_by_token(writer):
    model, src = WRITERS[writer](), random_sequences(LENGTHS)
    tokens = generate(model, src, max_steps=STEPS).tokens
    answers = {until_end(row) for row in tokens}
    assert len(answers) > 10
    assert len({len(answer) for answer in answers}) > 5
    assert torch.equal(tokens, generate_with_hugging_face(to_hugging_face(model), src, max_steps=STEPS)[:, 1:])


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(("beam_size", "n_best"), [(2, 1), (4, 1), (4, 4), (7, 7)])
def test_beam_search_finds_the_same(writer, beam_size, n_best):
    model, src = WRITERS[writer](), random_sequences(LENGTHS)
    settings = {"beam_size": beam_size, "n_best": n_best}
    ours = found_by_ours(model, src, **settings)
    assert_same(ours, found_by_theirs(model, src, **settings))
    lengths = {len(tokens) for found in ours for tokens, _ in found}
    assert len(lengths) > 5
    greedy = found_by_ours(model, src, beam_size=1)
    assert any(own[0] != first[0] for own, first in zip(ours, greedy, strict=True)) or writer == "shipped"


@pytest.mark.parametrize("seed", range(30))
def test_beam_search_of_random_models_finds_the_same(seed):
    model, src = transformer(seed=seed), random_sequences(LENGTHS[:16])
    settings = {"beam_size": 4, "n_best": 4}
    assert_same(found_by_ours(model, src, **settings), found_by_theirs(model, src, **settings))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("length_penalty", [0.0, 1.5])
def test_four_beams_that_never_end_are_the_same(norm, length_penalty):
    model, src = endless(norm), random_sequences(LENGTHS)
    settings = {"beam_size": 4, "n_best": 4, "length_penalty": length_penalty}
    assert_same(found_by_ours(model, src, **settings), found_by_theirs(model, src, **settings))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("vocab_size", "max_steps", "count"), [(3, 4, 31), (4, 2, 13), (5, 2, 21)])
def test_beams_that_hold_everything_are_the_same(seed, vocab_size, max_steps, count):
    model, src = transformer(vocab_size=vocab_size, seed=seed), random_sequences([5, 9, 3])
    with torch.no_grad():
        model.output.bias.zero_()  # PAD may be written too
    settings = {"beam_size": 32, "n_best": 32, "max_steps": max_steps}
    ours, theirs = found_by_ours(model, src, **settings), found_by_theirs(model, src, **settings)
    assert [len(found) for found in ours] == [count] * len(src)
    # What theirs adds to make up for 32 is marked by a score that no hypothesis has.
    assert_same(ours, [[each for each in found if each[1] > -1e8] for found in theirs])


@pytest.mark.parametrize("positions", ["alibi", "rope", "vo-rope"])
def test_relative_positions_are_refused(positions):
    with pytest.raises(ValueError, match=f"have no {positions} positions"):
        to_hugging_face(make_model(Transformer, positions=positions))


@pytest.mark.parametrize("options", [{"attention": "window", "attention_window": 2}, {"attention": "linear"}], ids=str)
def test_other_kinds_of_self_attention_are_refused(options):
    with pytest.raises(ValueError, match=f"have no {options['attention']} attention"):
        to_hugging_face(make_model(Transformer, **options))


def test_scores_scaled_by_the_length_are_refused():
    with pytest.raises(ValueError, match="have no attention_scale='log-length'"):
        to_hugging_face(make_model(Transformer, attention_scale="log-length"))
    with pytest.raises(ValueError, match=r"have no attention_temperature=2\.0"):
        to_hugging_face(make_model(Transformer, attention_temperature=2.0))
