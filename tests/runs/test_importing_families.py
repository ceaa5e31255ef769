"""BART's relatives, GPT-2 and T5: their options, and logits of plain forward passes written here.

That they compute the same as ``transformers`` is in ``test_parity_imported.py``, ``test_parity_gpt2.py`` and
``test_parity_tokenizers.py``, which need that package.
"""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.testing import assert_close

from core.models.relative_bias import distance_buckets
from core.runs import Runs
from core.runs.importing_models import import_model
from core.runs.load import load_run
from core.storage.errors import LabError
from core.tasks import build_task
from core.tasks.ingest import PairFiles, prepare_preset
from core.text.vocab import BOS_ID, EOS_ID
from tests.support.foreign_models import (
    BART,
    MARIAN,
    TEXTS,
    learn_merges,
    tensors,
    train_sentencepiece,
    write_folder,
)

MBART = BART | {"model_type": "mbart", "scale_embedding": True}
M2M100 = MARIAN | {"model_type": "m2m_100", "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
PEGASUS = MARIAN | {"model_type": "pegasus", "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
T5 = {"model_type": "t5", "vocab_size": 12, "d_model": 8, "d_kv": 4, "num_heads": 2, "d_ff": 6, "num_layers": 2}
T5 |= {"num_decoder_layers": 1, "decoder_start_token_id": 0, "feed_forward_proj": "gated-relu"}
GPT2 = {"model_type": "gpt2", "vocab_size": 12, "n_positions": 40, "n_embd": 8, "n_layer": 2, "n_head": 2}
GPT2 |= {"eos_token_id": 11}


def random(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) * 0.5 for name, shape in shapes.items()}


def t5_tensors(*, is_tied: bool = True) -> dict[str, torch.Tensor]:
    shapes: dict[str, tuple[int, ...]] = {"shared.weight": (12, 8)} | ({} if is_tied else {"lm_head.weight": (12, 8)})
    for side, count in (("encoder", 2), ("decoder", 1)):
        shapes[f"{side}.final_layer_norm.weight"] = (8,)
        shapes[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (32, 2)
        for number in range(count):
            block = f"{side}.block.{number}.layer"
            kinds = ["SelfAttention", *(["EncDecAttention"] if side == "decoder" else [])]
            for at, kind in enumerate(kinds):
                shapes |= {f"{block}.{at}.{kind}.{matrix}.weight": (8, 8) for matrix in "qkvo"}
            shapes |= {f"{block}.{at}.layer_norm.weight": (8,) for at in range(len(kinds) + 1)}
            feed_forward = f"{block}.{len(kinds)}.DenseReluDense"
            shapes |= {f"{feed_forward}.{name}.weight": (6, 8) for name in ("wi_0", "wi_1")}
            shapes[f"{feed_forward}.wo.weight"] = (8, 6)
    return random(shapes)


def t5_logits(state: dict[str, torch.Tensor], src: torch.Tensor, tgt: torch.Tensor, *, scale: float) -> torch.Tensor:
    """The logits (T, V) of one pair of ids (S,) and (T,), line by line as in the paper."""

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * state[f"{name}.weight"]

    def attend(x: torch.Tensor, y: torch.Tensor, name: str, bias: torch.Tensor | float) -> torch.Tensor:
        query, key, value = (
            (each @ state[f"{name}.{matrix}.weight"].t()).unflatten(-1, (2, 4)).transpose(0, 1)
            for each, matrix in ((x, "q"), (y, "k"), (y, "v"))
        )
        weights = (query @ key.transpose(1, 2) + bias).softmax(-1)
        return (weights @ value).transpose(0, 1).flatten(1) @ state[f"{name}.o.weight"].t()

    def stack(x: torch.Tensor, side: str, memory: torch.Tensor | None) -> torch.Tensor:
        distance = torch.arange(len(x))[None] - torch.arange(len(x))[:, None]
        buckets = distance_buckets(distance, is_causal=memory is not None)
        name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        bias = state[name][buckets].permute(2, 0, 1)
        bias = bias if memory is None else bias.masked_fill(distance > 0, -torch.inf)
        for number in range(2 if memory is None else 1):
            block = f"{side}.block.{number}.layer"
            y = normed(x, f"{block}.0.layer_norm")
            x = x + attend(y, y, f"{block}.0.SelfAttention", bias)
            if memory is not None:
                x = x + attend(normed(x, f"{block}.1.layer_norm"), memory, f"{block}.1.EncDecAttention", 0.0)
            last = f"{block}.{1 if memory is None else 2}"
            y = normed(x, f"{last}.layer_norm")
            wide = (y @ state[f"{last}.DenseReluDense.wi_0.weight"].t()).relu()
            wide = wide * (y @ state[f"{last}.DenseReluDense.wi_1.weight"].t())
            x = x + wide @ state[f"{last}.DenseReluDense.wo.weight"].t()
        return normed(x, f"{side}.final_layer_norm")

    memory = stack(state["shared.weight"][src], "encoder", None)
    states = stack(state["shared.weight"][tgt], "decoder", memory)
    return states * scale @ state.get("lm_head.weight", state["shared.weight"]).t()


@torch.no_grad()
@pytest.mark.parametrize("is_tied", [True, False])
def test_t5_computes_what_the_paper_says(tmp_path: Path, is_tied: bool):
    """Scores without √d_k, biases by distance, RMS norms; and tied embeddings divided by √d_model at the end."""
    state = t5_tensors(is_tied=is_tied)
    folder = write_folder(tmp_path / "t5", T5 | {"tie_word_embeddings": is_tied}, state)
    run, _ = import_model(tmp_path / "runs", folder)
    loaded = load_run(run.path)
    made = loaded.preset.model
    assert (made.positions, made.norm_block, made.feed_forward_block) == ("relative-bias", "rms-norm", "gated")
    assert made.tie_embeddings == ("all" if is_tied else "none")
    src, tgt = torch.tensor([5, 7, 3, 9]), torch.tensor([0, 4, 8])
    table = torch.tensor([0, 0, 1, *range(2, 12)])  # PAD, the copy of it that is BOS, EOS, the others
    ours = [torch.tensor([BOS_ID, *(src + 1).tolist(), EOS_ID]), torch.tensor([BOS_ID, *(tgt[1:] + 1).tolist()])]
    logits = loaded.model(ours[0][None], ours[1][None])[0]
    expected = t5_logits(state, torch.cat([src, torch.tensor([1])]), tgt, scale=8**-0.5 if is_tied else 1.0)
    assert_close(logits[:, 2:], expected[:, table[2:]], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_kv": 3}, "d_kv=3 times num_heads=2 must be d_model=8"),
        ({"relative_attention_num_buckets": 64}, "relative_attention_num_buckets=64 should be less"),
        ({"feed_forward_proj": "gated-tanh"}, "feed_forward_proj='gated-tanh'"),
        ({"num_layers": 3}, "'encoder.block.2.* is missing"),
        ({"num_layers": 1}, "'encoder.block.1.* belongs to no part of a T5 model"),
    ],
    ids=str,
)
def test_what_t5_of_ours_lacks_is_named(tmp_path: Path, changes: dict, message: str):
    with pytest.raises(LabError, match=message):
        import_model(tmp_path / "runs", write_folder(tmp_path / "t5", T5 | changes, t5_tensors()))


def gpt2_tensors() -> dict[str, torch.Tensor]:
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (12, 8), "wpe.weight": (40, 8)}
    sizes = {"ln_1": (8,), "ln_2": (8,), "attn.c_attn": (8, 24), "attn.c_proj": (8, 8), "mlp.c_fc": (8, 32)}
    sizes["mlp.c_proj"] = (32, 8)
    for number in range(2):
        for name, shape in sizes.items():
            shapes |= {f"h.{number}.{name}.weight": shape, f"h.{number}.{name}.bias": shape[-1:]}
    return random(shapes | {"ln_f.weight": (8,), "ln_f.bias": (8,)})


def gpt2_logits(state: dict[str, torch.Tensor], text: torch.Tensor) -> torch.Tensor:
    """The logits (T, V) of one text of ids (T,)."""

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (8,), state[f"{name}.weight"], state[f"{name}.bias"])

    def mapped(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ state[f"{name}.weight"] + state[f"{name}.bias"]

    x = state["wte.weight"][text] + state["wpe.weight"][: len(text)]
    for number in range(2):
        query, key, value = (
            each.unflatten(-1, (2, 4)).transpose(0, 1)
            for each in mapped(normed(x, f"h.{number}.ln_1"), f"h.{number}.attn.c_attn").chunk(3, dim=-1)
        )
        scores = (query @ key.transpose(1, 2) / 2).masked_fill(torch.ones(len(text), len(text)).triu(1) > 0, -torch.inf)
        x = x + mapped((scores.softmax(-1) @ value).transpose(0, 1).flatten(1), f"h.{number}.attn.c_proj")
        wide = F.gelu(mapped(normed(x, f"h.{number}.ln_2"), f"h.{number}.mlp.c_fc"), approximate="tanh")
        x = x + mapped(wide, f"h.{number}.mlp.c_proj")
    return normed(x, "ln_f") @ state["wte.weight"].t()


@torch.no_grad()
@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_gpt2_continues_the_input_as_one_text(tmp_path: Path, prefix: str):
    state = gpt2_tensors()
    folder = write_folder(tmp_path / "gpt2", GPT2, {f"{prefix}{name}": each for name, each in state.items()})
    run, _ = import_model(tmp_path / "runs", folder)
    loaded = load_run(run.path)
    assert loaded.preset.model.max_seq_len == 20
    text = torch.tensor([5, 7, 3, 9, 2, 6])
    ours = torch.tensor([[BOS_ID, *(text[:4] + 3).tolist(), EOS_ID]])  # PAD, BOS, EOS, then theirs but for EOS
    logits = loaded.model(ours, torch.tensor([[BOS_ID, *(text[4:] + 3).tolist()]]))[0]
    expected = gpt2_logits(state, text)[3:]
    assert_close(logits[:, 3:], expected[:, :11], atol=1e-4, rtol=1e-4)
    assert_close(logits[:, EOS_ID], expected[:, 11], atol=1e-4, rtol=1e-4)
    answer = loaded.decode("5 7 3 9").output
    read, written = [5, 7, 3, 9], []
    while len(written) < len(answer):
        written.append(int(gpt2_logits(state, torch.tensor(read + written))[-1].argmax()))
    assert answer == [f"\u2581{index}" for index in written]


def test_text_of_gpt2_is_one_text_with_its_answer(tmp_path: Path):
    vocabulary, merges = learn_merges(TEXTS, 40)
    tokens = [token for token in vocabulary if token not in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")]
    tokens.append("<|endoftext|>")
    state = gpt2_tensors()
    state["wte.weight"] = torch.randn(len(tokens), 8, generator=torch.Generator().manual_seed(1))
    folder = write_folder(tmp_path / "gpt2", GPT2 | {"vocab_size": len(tokens), "eos_token_id": len(tokens) - 1}, state)
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    run, _ = import_model(tmp_path / "runs", folder)
    loaded = load_run(run.path)
    pieces = loaded.task.tokenize("Press Enter")
    assert loaded.task.subwords.source.detokenize(pieces) == "Press Enter"
    theirs = [
        index - 3 for index in loaded.task.src_vocab.encode(pieces)
    ]  # after PAD, BOS and EOS, which is their last
    answer = loaded.task.tgt_vocab.encode(loaded.decode("Press Enter").output[:3])
    for index in answer:
        assert int(gpt2_logits(state, torch.tensor(theirs))[-1].argmax()) == index - 3
        theirs.append(index - 3)


def test_gpt2_is_refused_by_name(tmp_path: Path):
    state = gpt2_tensors()
    for changes, message in (
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True should be False"),
        ({"eos_token_id": 12}, "eos_token_id=12 must be below vocab_size=12"),
        ({"n_inner": 16}, r"mlp.c_fc.weight' has shape \(8, 32\); by config.json it is \(8, 16\)"),
        ({"n_layer": 1}, "'h.1.* belongs to no part of a GPT-2 model"),
    ):
        folder = write_folder(tmp_path / message[:8], GPT2 | changes, state)
        with pytest.raises(LabError, match=message):
            import_model(tmp_path / "runs", folder)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (MBART, {"norm": "pre", "positions": "learned", "embedding_norm": True, "source_bos": False}),
        (M2M100, {"norm": "pre", "positions": "sinusoidal-fairseq", "embedding_norm": False, "source_bos": False}),
        (PEGASUS, {"norm": "pre", "positions": "sinusoidal-halves", "embedding_norm": False, "source_bos": False}),
    ],
    ids=lambda value: value.get("model_type", ""),
)
def test_relatives_of_bart_have_these_options(tmp_path: Path, config: dict, expected: dict):
    state = tensors(config)
    run, _ = import_model(tmp_path / "runs", write_folder(tmp_path / "m", config, state))
    loaded = load_run(run.path)
    assert {name: getattr(loaded.preset.model, name) for name in expected} == expected
    assert torch.equal(loaded.model.decoder_norm.weight, state["model.decoder.layer_norm.weight"])
    if config is MBART:
        positions = state["model.decoder.embed_positions.weight"][2:]
        assert torch.equal(loaded.model.tgt_embedding.positions, positions)


def test_a_forced_token_begins_every_output(tmp_path: Path):
    folder = write_folder(tmp_path / "m", MBART, generation={"forced_bos_token_id": 7})
    run, _ = import_model(tmp_path / "runs", folder)
    loaded = load_run(run.path)
    for text in ("4 5", "9 8 3"):
        decoded = loaded.decode(text)
        assert (decoded.output[0], decoded.steps[0].forced) == ("\u25817", True)
    assert loaded.decode("4 5", prefix="9").output[0] == "\u25817"  # a typed prefix comes after it
    pairs = tmp_path / "p.tsv"
    pairs.write_text("".join(f"{at % 9 + 3} {at // 9 + 3}\t{at // 9 + 3}\n" for at in range(81)))
    kept = tmp_path / "kept"
    _, preset = prepare_preset(PairFiles(pairs), kept, kinds=("subword", "subword"), like=loaded.preset)
    begun = Runs(tmp_path / "runs").create(preset, pairs=kept, start_from=run.name)
    assert build_task(begun.preset.task, pairs=begun.folder.pairs).forced_start == loaded.model.forced_start


def test_languages_are_tokens_before_sources_and_answers(tmp_path: Path):
    """NLLB's vocabulary: fairseq's first four, SentencePiece's pieces, the languages and a mask."""
    folder = tmp_path / "nllb"
    folder.mkdir()
    model = train_sentencepiece(folder / "sentencepiece.bpe.model", model_type="bpe")
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"additional_special_tokens": ["ace_Arab", "eng_Latn", "deu_Latn"]})
    )
    config = M2M100 | {"vocab_size": model.vocab_size() + 7}
    state = tensors(config)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(state, folder / "model.safetensors")
    run, notes = import_model(tmp_path / "runs", folder, languages=("eng_Latn", "deu_Latn"))
    assert "sources begin with eng_Latn, answers with deu_Latn" in notes
    loaded, table = load_run(run.path), state["model.shared.weight"]
    pieces = model.encode("Press Enter", out_type=str)
    assert loaded.task.tokenize("Press Enter") == ["eng_Latn", *pieces]
    ids = loaded.task.src_vocab.encode(["eng_Latn", *pieces])
    first = model.vocab_size() + 1
    expected = [first + 1, *(index + 1 for index in model.encode("Press Enter"))]
    assert torch.equal(loaded.model.tgt_embedding.tokens.weight[ids], table[expected])
    assert torch.equal(loaded.model.tgt_embedding.tokens.weight[list(loaded.model.forced_start)], table[[first + 2]])
    with pytest.raises(LabError, match="a language is chosen, but the folder has no tokenizer"):
        import_model(tmp_path / "runs", write_folder(tmp_path / "n", M2M100), languages=("en", "de"))
    for source in (write_folder(tmp_path / "m", MARIAN), folder / "model.safetensors"):
        with pytest.raises(LabError, match="language 'deu_Latn': "):
            import_model(tmp_path / "runs", source, languages=(None, "deu_Latn"))
    with pytest.raises(LabError, match="source language is missing; the tokenizer has ace_Arab, eng_Latn, deu_Latn"):
        import_model(tmp_path / "runs", folder)
