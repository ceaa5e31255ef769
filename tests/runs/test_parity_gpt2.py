"""Imported GPT-2 scores, attends and writes as in ``transformers``, where input and answer are one text."""

import pytest
import torch
from torch.testing import assert_close

from core.generation import generate
from core.interpret.trained import Trained
from core.models import forward_with_attention
from core.runs.importing_models import import_model
from core.runs.load import load_run
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install -c requirements-extras.txt -e '.[parity]'"
)

from transformers import GPT2Config, GPT2LMHeadModel

V, EOS = 23, 22
SMALL = {"vocab_size": V, "n_positions": 48, "n_embd": 16, "n_layer": 2, "n_head": 4, "eos_token_id": EOS}
SMALL |= {"bos_token_id": EOS}
MODELS = {
    "small": SMALL,
    "deep": SMALL | {"n_layer": 6, "n_head": 2, "n_inner": 40, "activation_function": "relu"},
    "untied": SMALL | {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
}
LENGTHS = [1 + row % 9 for row in range(50)]


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[GPT2LMHeadModel, Trained]:
    torch.manual_seed(1)
    theirs = GPT2LMHeadModel(GPT2Config(**MODELS[request.param], attn_implementation="eager")).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            torch.nn.init.normal_(parameter, mean=float("ln_" in name and "weight" in name), std=0.5)
    folder = tmp_path_factory.mktemp("models")
    theirs.save_pretrained(folder / "gpt2")
    run, notes = import_model(folder / "runs", folder / "gpt2")
    assert any("continues the input" in note for note in notes)
    loaded = load_run(run.path)
    theirs.double(), loaded.model.double()  # such weights amplify rounding
    return theirs, loaded


def ids_of(loaded: Trained) -> torch.Tensor:
    """Their id of each of ours."""
    return torch.tensor([EOS, EOS, EOS, *(int(symbol[1:]) for symbol in loaded.task.tgt_vocab.symbols)])


def prompts(loaded: Trained) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    src = torch.full((len(LENGTHS), 11), PAD_ID)
    for row, length in enumerate(LENGTHS):
        tokens = torch.randint(3, len(loaded.task.src_vocab), (length,), generator=generator)
        src[row, : length + 2] = torch.tensor([BOS_ID, *tokens.tolist(), EOS_ID])
    return src


@torch.no_grad()
def test_logits_and_attention_are_those_of_one_text(both):
    theirs, loaded = both
    table, src = ids_of(loaded), prompts(loaded)
    tgt = torch.randint(3, V + 2, (len(src), 8), generator=torch.Generator().manual_seed(4))
    tgt[:, 0] = BOS_ID
    logits, maps = forward_with_attention(loaded.model, src, tgt)
    for row, length in enumerate(LENGTHS):
        text = table[torch.cat([src[row, 1 : length + 1], tgt[row, 1:]])][None]
        expected = theirs(text, output_attentions=True)
        assert_close(logits[row, :, 2:], expected.logits[0, -8:][:, table[2:]], atol=1e-4, rtol=1e-4)
        ours = torch.cat([maps.decoder[:, row, :, :, 1:length], maps.decoder[:, row, :, :, src.shape[1] :]], dim=-1)
        assert_close(ours, torch.stack(expected.attentions)[:, 0, :, -8:], atol=1e-5, rtol=0)
        assert maps.decoder[:, row, :, :, [0, length, length + 1]].abs().max() == 0  # BOS, the last token and EOS


def test_greedy_answers_are_the_same(both):
    theirs, loaded = both
    table, src = ids_of(loaded), prompts(loaded)
    found = table[generate(loaded.model, src, max_steps=12).tokens]
    different = set()
    for row, length in enumerate(LENGTHS):
        text = table[src[row, 1 : length + 1]][None]
        made = theirs.generate(
            text, attention_mask=torch.ones_like(text), max_new_tokens=12, do_sample=False, pad_token_id=EOS
        )[0, length:].tolist()
        ours = found[row].tolist()
        ours, made = (each[: each.index(EOS)] if EOS in each else each for each in (ours, made))
        assert ours == made
        different.add(tuple(made))
    assert len(different) > 20
