"""Imported models score, attend, write, search and learn as they do in ``transformers``."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from core.generation import Beam, generate
from core.interpret.trained import Trained
from core.models import forward_with_attention
from core.models.positions import sinusoidal_positions
from core.runs import Runs
from core.runs.importing_models import import_model
from core.runs.load import load_run
from core.runs.training_state import resume_state
from core.tasks.ingest import PairFiles, prepare_preset
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from core.training.loop import StepEvent, batches_of, train

pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install -c requirements-extras.txt -e '.[parity]'"
)

from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

STEPS, INPUTS = 12, 200
SIZES = {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 32}
SMALL = SIZES | {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
DEEP = SMALL | {"encoder_layers": 6, "decoder_layers": 6, "d_model": 24, "encoder_attention_heads": 8}
DEEP |= {"decoder_attention_heads": 8}
UNTIED = {"tie_word_embeddings": False}
MARIAN = {
    "vocab_size": 23,
    "pad_token_id": 22,
    "eos_token_id": 0,
    "decoder_start_token_id": 22,
    "scale_embedding": True,
}
MARIAN |= {"activation_function": "swish", "forced_eos_token_id": None}
BART = {"vocab_size": 23, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
BART |= {"activation_function": "gelu", "forced_eos_token_id": None}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 27}
MBART = BART | {"scale_embedding": True}
M2M100 = BART | {"scale_embedding": True, "activation_function": "relu"}
PEGASUS = {"vocab_size": 23, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "scale_embedding": True}
PEGASUS |= {"activation_function": "relu", "forced_eos_token_id": None}
T5 = {"vocab_size": 23, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "d_model": 16, "d_kv": 4}
T5 |= {"d_ff": 24, "num_heads": 4, "num_layers": 2}
KINDS = {
    "marian": (MarianMTModel, MarianConfig),
    "bart": (BartForConditionalGeneration, BartConfig),
    "mbart": (MBartForConditionalGeneration, MBartConfig),
    "m2m100": (M2M100ForConditionalGeneration, M2M100Config),
    "pegasus": (PegasusForConditionalGeneration, PegasusConfig),
    "t5": (T5ForConditionalGeneration, T5Config),
    "mt5": (MT5ForConditionalGeneration, MT5Config),
}
MODELS = {
    "marian-2": MARIAN | SMALL,
    "marian-6": MARIAN | DEEP | {"activation_function": "relu"},
    "marian-2-separate": MARIAN | SMALL | SEPARATE,
    "marian-2-separate-untied": MARIAN | SMALL | SEPARATE | UNTIED,
    "marian-uneven": MARIAN | SMALL | {"encoder_layers": 1, "decoder_layers": 3, "scale_embedding": False},
    "bart-2": BART | SMALL,
    "bart-6": BART | DEEP | {"scale_embedding": True},
    "bart-2-untied": BART | SMALL | UNTIED,
    "bart-own-start": BART | SMALL | {"decoder_start_token_id": 0, "activation_function": "relu"},
    "mbart-2": MBART | SMALL,
    "mbart-language-start": MBART | SMALL | {"decoder_start_token_id": 21, "activation_function": "gelu_new"},
    "m2m100-2": M2M100 | SMALL,
    "m2m100-6": M2M100 | DEEP,
    "pegasus-2": PEGASUS | SMALL,
    "pegasus-uneven": PEGASUS | SMALL | {"encoder_layers": 1, "decoder_layers": 3},
    "t5-2": T5,
    "t5-uneven": T5 | {"num_layers": 3, "num_decoder_layers": 1, "layer_norm_epsilon": 1e-3},
    "mt5-2": T5 | {"feed_forward_proj": "gated-gelu"},
    "t5-gated": T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


@dataclass(frozen=True)
class Both:
    """A model of theirs, the run that its folder became, and the tables that translate ids of ours to theirs."""

    theirs: Any
    loaded: Trained
    ids: tuple[torch.Tensor, torch.Tensor]

    @property
    def reads_bos(self) -> bool:
        return self.theirs.config.model_type == "bart"

    def sources(self, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Random sources of 1 to 10 tokens, ours (B, S); and theirs (B, S or S - 1) with their attention mask."""
        generator = torch.Generator().manual_seed(1)
        vocab = self.loaded.task.src_vocab
        ours = torch.zeros(count, 12, dtype=torch.int64)
        for row in range(count):
            length = 1 + row % 10
            tokens = torch.randint(vocab.first_symbol_id, len(vocab), (length,), generator=generator)
            ours[row, : length + 2] = torch.tensor([BOS_ID, *tokens.tolist(), EOS_ID])
        theirs = self.ids[0][ours][:, 0 if self.reads_bos else 1 :]
        return ours, theirs, (ours != PAD_ID).long()[:, 0 if self.reads_bos else 1 :]

    def targets(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Random decoder inputs, ours and theirs."""
        vocab = self.loaded.task.tgt_vocab
        tokens = torch.randint(
            vocab.first_symbol_id, len(vocab), (count, 9), generator=torch.Generator().manual_seed(2)
        )
        tokens[:, 0] = BOS_ID
        return tokens, self.ids[1][tokens]

    def theirs_of(self, tokens: list[int]) -> tuple[int, ...]:
        return tuple(self.ids[1][tokens].tolist())

    def until_end(self, ids: list[int]) -> tuple[int, ...]:
        """Their ids up to and with the first EOS."""
        eos = self.theirs.config.eos_token_id
        return tuple(ids[: ids.index(eos) + 1] if eos in ids else ids)


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return make(request.param, shake(build(request.param, MODELS[request.param])), tmp_path_factory.mktemp("models"))


def build(name: str, settings: dict) -> Any:
    model, config = KINDS[name.partition("-")[0]]
    return model(config(**settings, attn_implementation="eager")).eval()


@torch.no_grad()
def shake(theirs: Any) -> Any:
    """Draw weights with which answers differ from source to source; Marian's positions stay."""
    torch.manual_seed(2)  # with which no two hypotheses are so close that rounding ranks them
    for key, parameter in [*theirs.named_parameters(), *theirs.named_buffers()]:
        if "norm.weight" in key:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif theirs.config.model_type in ("bart", "mbart") or "embed_positions" not in key:
            torch.nn.init.normal_(
                parameter, std=spread(key, is_scaled=getattr(theirs.config, "scale_embedding", False))
            )
    return theirs


def make(name: str, theirs: Any, folder: Path, **generation: Any) -> Both:
    if theirs.config.model_type == "m2m_100":  # after a PAD that it wrote, it would count positions differently
        generation |= {"suppress_tokens": [theirs.config.pad_token_id]}
    for key, value in generation.items():
        setattr(theirs.generation_config, key, value)
    theirs.save_pretrained(folder / name)
    run, _ = import_model(folder / "runs", folder / name)
    loaded = load_run(run.path)
    if theirs.config.model_type == "m2m_100":
        share_sines(theirs, loaded.model.src_embedding)
    theirs.double(), loaded.model.double()  # such weights amplify rounding, by layer
    special = [theirs.config.pad_token_id, theirs.config.decoder_start_token_id, theirs.config.eos_token_id]
    tables = []
    for vocab, first in (
        (loaded.task.src_vocab, getattr(theirs.config, "bos_token_id", None)),
        (loaded.task.tgt_vocab, special[1]),
    ):
        known = [special[0], special[1] if first is None else first, special[2]]
        tables.append(torch.tensor([*known, *(int(symbol[1:]) for symbol in vocab.symbols)]))
    return Both(theirs, loaded, (tables[0], tables[1]))


def share_sines(theirs: Any, embedding: Any) -> None:
    """Give theirs our sines, which it computes in float32."""
    table = embedding.positions if embedding is not None else None
    for side in (theirs.model.encoder, theirs.model.decoder):
        kept = side.embed_positions.weights
        ours = sinusoidal_positions(len(kept) - 2, kept.shape[1], is_fairseq=True)
        assert table is None or torch.equal(ours, table)
        assert_close(kept[2:], ours, atol=1e-5, rtol=0)
        kept[2:] = ours


def spread(name: str, *, is_scaled: bool) -> float:
    """The standard deviation of a random parameter, with which answers differ from source to source."""
    if "bias" in name:
        return 0.1
    if any(part in name for part in ("shared", "embed_tokens", "lm_head")):
        return 0.25 if is_scaled else 1.0
    return 1.0 if any(part in name for part in ("embed_positions", "q_proj", "k_proj", "relative")) else 0.35


@torch.no_grad()
def test_logits_are_the_same(both):
    src, their_src, mask = both.sources(30)
    tgt, their_tgt = both.targets(30)
    expected = both.theirs(input_ids=their_src, attention_mask=mask, decoder_input_ids=their_tgt).logits
    actual = both.loaded.model(src, tgt)
    rows = [row for row in range(actual.shape[-1]) if actual[0, 0, row] > -1e8]  # but for the copy that BOS is
    assert len(rows) == expected.shape[-1] - (both.theirs.config.model_type == "m2m_100")
    assert_close(actual[..., rows], expected[..., both.ids[1][rows]], rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_logits_of_fresh_weights_are_the_same_in_single_precision(tmp_path, name):
    torch.manual_seed(0)
    theirs = build(name, MODELS[name])
    both = make(name, theirs, tmp_path)
    theirs.float(), both.loaded.model.float()
    test_logits_are_the_same(both)


@torch.no_grad()
def test_attention_maps_are_the_same(both):
    src, their_src, mask = both.sources(20)
    tgt, their_tgt = both.targets(20)
    seen = both.theirs(input_ids=their_src, attention_mask=mask, decoder_input_ids=their_tgt, output_attentions=True)
    _, maps = forward_with_attention(both.loaded.model, src, tgt)
    start = 0 if both.reads_bos else 1
    is_real = (src != PAD_ID)[:, None, start:, None]  # no position of PAD is read
    ours, expected = maps.encoder[..., start:, start:] * is_real, torch.stack(seen.encoder_attentions) * is_real
    assert_close(ours, expected, rtol=0, atol=1e-5)
    assert_close(maps.decoder, torch.stack(seen.decoder_attentions), rtol=0, atol=1e-5)
    assert_close(maps.cross[..., start:], torch.stack(seen.cross_attentions), rtol=0, atol=1e-5)
    assert maps.cross[..., :start].sum() == maps.encoder[..., :start].sum() == 0


def generate_theirs(both: Both, ids: torch.Tensor, mask: torch.Tensor, **settings: Any) -> Any:
    return both.theirs.generate(ids, attention_mask=mask, max_new_tokens=STEPS, do_sample=False, **settings)


def test_greedy_answers_are_the_same(both):
    src, their_src, mask = both.sources(INPUTS)
    ours = generate(both.loaded.model, src, max_steps=STEPS).tokens.tolist()
    theirs = generate_theirs(both, their_src, mask, num_beams=1)[:, 1:].tolist()
    ours = [both.until_end(list(both.theirs_of(row))) for row in ours]
    assert ours == [both.until_end(row) for row in theirs]
    assert len(set(ours)) >= 5


def test_beam_search_finds_the_same_hypotheses_and_scores(both):
    if both.theirs.config.model_type == "m2m_100":
        pytest.skip("they suppress PAD after the softmax, so scores of random weights are not comparable")
    src, their_src, mask = both.sources(20)
    search = generate(
        both.loaded.model, src, max_steps=STEPS, strategy=Beam(beam_size=4, n_best=4, length_penalty=0.0)
    ).search
    made = generate_theirs(
        both,
        their_src,
        mask,
        num_beams=4,
        num_return_sequences=4,
        length_penalty=0.0,
        early_stopping=True,
        return_dict_in_generate=True,
        output_scores=True,
    )
    found = iter(zip(made.sequences[:, 1:].tolist(), made.sequences_scores.tolist(), strict=True))
    for row in range(len(src)):
        ours = [(both.theirs_of(list(each.tokens)), each.log_prob) for each in search.hypotheses(row)]
        theirs = [(both.until_end(tokens), score) for tokens, score in islice(found, 4)]
        assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in theirs]
        for (tokens, log_prob), (_, score) in zip(ours, theirs, strict=True):
            assert log_prob == pytest.approx(score, abs=1e-5 * len(tokens), rel=1e-4)


def test_a_forced_prefix_is_a_forced_first_token(tmp_path):
    both = make("bart-forced", shake(build("bart", BART | SMALL)), tmp_path, forced_bos_token_id=0)
    src, their_src, mask = both.sources(20)
    first = both.loaded.task.tgt_vocab.encode([both.loaded.task.subwords.answer_start])
    ours = generate(both.loaded.model, src, max_steps=STEPS, prefix=first).tokens.tolist()
    theirs = generate_theirs(both, their_src, mask, num_beams=1)[:, 1:].tolist()
    assert [both.until_end(list(both.theirs_of(row))) for row in ours] == [both.until_end(row) for row in theirs]


def test_twenty_updates_have_the_same_losses(tmp_path):
    """Fine-tuning on own pairs, where both train the same parameters.

    We train the output's bias, as Marian does, which is a buffer in ``transformers``; there the row of PAD is trained
    as an output, and the decoder starts with it. So here the bias is a parameter, PAD gets no gradient, and the decoder
    starts with a token of its own.
    """
    start, pad = 21, MARIAN["pad_token_id"]
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    torch.manual_seed(0)
    theirs = build("marian", MARIAN | SMALL | no_dropout | {"decoder_start_token_id": start, "init_std": 0.2})
    both = make("marian", theirs, tmp_path)
    theirs.float().train()
    theirs.final_logits_bias = torch.nn.Parameter(theirs._buffers.pop("final_logits_bias"))
    theirs.model.shared.weight.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor(pad), 0))
    numbers = torch.randint(1, 20, (300, 6), generator=torch.Generator().manual_seed(0)).tolist()
    texts = [" ".join(map(str, row[: 1 + at % 6])) for at, row in enumerate(numbers)]
    (tmp_path / "p.tsv").write_text("".join(f"{text}\t{' '.join(reversed(text.split()))}\n" for text in texts))
    files, kept = PairFiles(tmp_path / "p.tsv"), tmp_path / "kept"
    _, preset = prepare_preset(files, kept, kinds=("subword", "subword"), like=both.loaded.preset)
    training = {"steps": 20, "batch_size": 32, "schedule": "constant", "learning_rate": 0.001, "evaluate_every": 20}
    preset = preset.with_changes({f"training.{key}": value for key, value in training.items()})
    run = Runs(tmp_path / "runs").create(preset, pairs=kept, start_from=both.loaded.run)
    state, batches = resume_state(run.folder), batches_of(resume_state(run.folder))
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.001)
    drawn, ours, expected = torch.Generator(), [], []
    drawn.set_state(state.generator.get_state())
    for event in train(state):
        if not isinstance(event, StepEvent):
            continue
        ours.append(event.loss)
        batch = batches.at(event.step, drawn)
        labels = both.ids[1][batch.tgt_out].masked_fill(batch.tgt_out == PAD_ID, -100)
        mask = (batch.src != PAD_ID).long()[:, 1:]
        loss = theirs(input_ids=both.ids[0][batch.src][:, 1:], attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), preset.training.max_gradient_norm)
        optimizer.step()
        expected.append(loss.item())
    assert ours == pytest.approx(expected, abs=1e-4)
    assert ours[-1] < ours[0] - 0.1
