"""Models of other programs: rows and options are those of the folder, its text is split alike, the rest is refused.

That they compute the same is in ``test_parity_imported.py``.
"""

import json
from pathlib import Path

import pytest
import regex
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from core.__main__ import main
from core.generation import generate
from core.interpret.trained import Trained
from core.models import forward_with_attention
from core.runs.export import export_weights
from core.runs.imported_model import NEVER
from core.runs.importing import import_run
from core.runs.importing_models import import_model
from core.runs.load import load_run
from core.runs.training_state import training_state_of
from core.storage.errors import InputError, LabError
from core.storage.text_checksum import without_checksum
from core.teaching.doctor import examine_state
from core.text.byte_bpe import content_of, piece_of, split_words
from core.text.subwords import SubwordTokenizers
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tests.support.foreign_models import (
    BART,
    GPT2,
    MARIAN,
    TEXTS,
    learn_merges,
    merge_in,
    tensors,
    train_sentencepiece,
    write_folder,
    write_marian_text_model,
)

SENTENCES = [*TEXTS, "  two  spaces ", "ﬁne Ｆｕｌｌ ½", "unseen Ж and 😀", "", ">>deu<< Press Enter", "tab\tand\nline"]


def imported(tmp_path: Path, folder: Path, pairs: Path | None = None) -> Trained:
    run, _ = import_model(tmp_path / "runs", folder, pairs=pairs)
    return load_run(run.path)


def named_by_ids(loaded: Trained, ids: list[int]) -> list[int]:
    """The ids in our vocabulary of tokens that have only their number as a name."""
    return loaded.task.src_vocab.encode([f"\u2581{index}" for index in ids])


# --- rows ---------------------------------------------------------------------------------------------------------


def test_rows_of_marian_are_moved_to_our_special_ids(tmp_path):
    state = tensors(MARIAN)
    loaded = imported(tmp_path, write_folder(tmp_path / "m", MARIAN, state))
    table, output = state["model.shared.weight"], loaded.model.output
    embedded = loaded.model.tgt_embedding.tokens.weight
    assert loaded.preset.model.tie_embeddings == "all"
    assert torch.equal(embedded[[PAD_ID, BOS_ID, EOS_ID]], table[[19, 19, 0]])
    assert torch.equal(embedded[named_by_ids(loaded, [1, 7, 18])], table[[1, 7, 18]])
    assert torch.equal(output.bias[[PAD_ID, EOS_ID]], state["final_logits_bias"][0, [19, 0]])
    assert output.bias[BOS_ID] == NEVER  # the row is a copy of PAD's, and is not a token of theirs
    assert len(embedded) == MARIAN["vocab_size"] + 1


def test_bart_begins_its_source_and_its_answer_with_other_tokens(tmp_path):
    state = tensors(BART)
    loaded = imported(tmp_path, write_folder(tmp_path / "b", BART, state))
    table, model = state["model.shared.weight"], loaded.model
    assert torch.equal(model.src_embedding.tokens.weight[[PAD_ID, BOS_ID, EOS_ID]], table[[1, 0, 2]])
    assert torch.equal(model.tgt_embedding.tokens.weight[[PAD_ID, BOS_ID, EOS_ID]], table[[1, 2, 2]])
    assert torch.equal(model.src_embedding.positions, state["model.encoder.embed_positions.weight"][2:])
    assert loaded.task.subwords.sides[1].tokenize("7 8") == ["\u25810", "\u25817", "\u25818"]
    assert loaded.task.answer_text(["\u25810", "\u25817", "\u25818"]) == "7 8"
    assert loaded.task.tokenize("7 8") == ["\u25817", "\u25818"]


def test_tables_that_differ_are_not_tied(tmp_path):
    config = MARIAN | {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    config |= {"decoder_vocab_size": 23}
    state = tensors(config)
    del state["model.shared.weight"]
    sizes = {"model.encoder.embed_tokens": 20, "model.decoder.embed_tokens": 23, "lm_head": 23}
    state |= {f"{name}.weight": torch.randn(size, 8) for name, size in sizes.items()}
    state["final_logits_bias"] = torch.randn(1, 23)
    loaded = imported(tmp_path, write_folder(tmp_path / "m", config, state))
    assert loaded.preset.model.tie_embeddings == "none"
    assert not loaded.preset.task.joint_vocabulary
    assert [len(vocab) for vocab in (loaded.task.src_vocab, loaded.task.tgt_vocab)] == [21, 24]
    assert torch.equal(loaded.model.output.weight[3:], state["lm_head.weight"][[*range(1, 19), 20, 21, 22]])


def test_positions_that_are_not_sines_are_kept(tmp_path):
    state = tensors(MARIAN)
    tables = {f"model.{side}.embed_positions.weight": torch.randn(24, 8) for side in ("encoder", "decoder")}
    loaded = imported(tmp_path, write_folder(tmp_path / "m", MARIAN, state | tables))
    assert loaded.preset.model.positions == "learned"
    assert torch.equal(loaded.model.src_embedding.positions, tables["model.encoder.embed_positions.weight"])


def test_nothing_attends_to_a_bos_that_marian_does_not_read(tmp_path):
    model = imported(tmp_path, write_folder(tmp_path / "m", MARIAN)).model
    src, tgt = torch.tensor([[BOS_ID, 5, 9, EOS_ID]]), torch.tensor([[BOS_ID, 4, 6]])
    _, maps = forward_with_attention(model, src, tgt)
    assert maps.encoder[..., 0].abs().max() == maps.cross[..., 0].abs().max() == 0
    other = src.clone()
    other[0, 0] = 7  # read as a token
    assert not torch.allclose(model(src, tgt), model(other, tgt))


def test_a_forbidden_token_is_never_written(tmp_path):
    folder = write_folder(tmp_path / "m", MARIAN, generation={"bad_words_ids": [[19], [4, 5]], "num_beams": 6})
    run, notes = import_model(tmp_path / "runs", folder)
    bias = load_run(run.path).model.output.bias
    assert (bias == NEVER).nonzero().flatten().tolist() == [PAD_ID, BOS_ID]
    assert any("1 tokens" in note for note in notes)
    assert any("num_beams=6" in note for note in notes)
    assert all(note in run.read_info().message for note in notes)


@pytest.mark.parametrize("form", ["float16", "parts", "pytorch_model.bin"])
def test_other_forms_of_the_weights_are_read(tmp_path, form):
    state = {name: tensor.half().float() for name, tensor in tensors(BART).items()}
    expected = imported(tmp_path, write_folder(tmp_path / "one", BART, state)).model.state_dict()
    folder = write_folder(tmp_path / "other", BART, {name: tensor.half() for name, tensor in state.items()})
    if form != "float16":
        (folder / "model.safetensors").unlink()
    if form == "pytorch_model.bin":
        torch.save(state, folder / form)
    if form == "parts":
        names = sorted(state)
        parts = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
        for file, kept in parts.items():
            save_file({name: state[name] for name in kept}, folder / file)
        weight_map = {name: file for file, kept in parts.items() for name in kept}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    actual = imported(tmp_path, folder).model.state_dict()
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "bert"},
            "model_type = 'bert' is not supported; supported are marian, bart, mbart, m2m_100, pegasus,",
        ),
        ({"model_type": None}, r"config\.json: model_type is missing; supported are marian, bart, mbart,"),
        ({"activation_function": "tanh"}, "activation_function='tanh'"),
        ({"decoder_attention_heads": 4}, "encoder_attention_heads=2 must equal decoder_attention_heads=4"),
        ({"encoder_ffn_dim": 16}, "encoder_ffn_dim=16 must equal decoder_ffn_dim=12"),
        ({"eos_token_id": 20}, "eos_token_id=20 must be below vocab_size=20"),
        ({"eos_token_id": 19}, "pad_token_id=19 must differ from eos_token_id"),
        ({"d_model": None}, "d_model is missing"),
        ({"max_position_embeddings": 4096}, r"model\.max_seq_len=4096"),
        ({"encoder_layers": 2}, r"'model\.encoder\.layers\.1.* is missing"),
        ({"decoder_layers": 1}, r"'model\.decoder\.layers\.1.* belongs to no part of a marian model"),
        ({"encoder_ffn_dim": 16, "decoder_ffn_dim": 16}, r"has shape \(12, 8\); by config.json it is \(16, 8\)"),
        ({"vocab_size": 400_000, "eos_token_id": 0}, "the vocabulary has 400,000 tokens; the limit is 300,000"),
        ({"vocab_size": 21}, r"has shape \(20, 8\); by config.json it is \(21, 8\)"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(tmp_path, changes, message):
    folder = write_folder(tmp_path / "m", MARIAN | changes, tensors(MARIAN))
    with pytest.raises(LabError, match=message):
        import_model(tmp_path / "runs", folder)
    assert not (tmp_path / "runs").exists()


def test_damaged_files_are_named(tmp_path):
    folder = write_folder(tmp_path / "m", MARIAN)
    (folder / "config.json").write_text("{")
    with pytest.raises(LabError, match=r"config\.json is not JSON"):
        import_model(tmp_path / "runs", folder)
    (folder / "config.json").write_text(json.dumps(MARIAN))
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(LabError, match=r"model\.safetensors cannot be read"):
        import_model(tmp_path / "runs", folder)
    for zipped in (True, False):
        torch.save({"weight": torch.zeros(300, 300)}, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
        content = (tmp_path / "model.pt").read_bytes()
        for kept in (0, len(content) // 2, len(content) - 100):
            (tmp_path / "model.pt").write_bytes(content[:kept])
            with pytest.raises(LabError, match=r"^model\.pt cannot be read: it is empty, damaged or cut off$"):
                import_model(tmp_path / "runs", tmp_path / "model.pt")
    (folder / "model.safetensors").unlink()
    with pytest.raises(LabError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        import_model(tmp_path / "runs", folder)
    with pytest.raises(LabError, match=r"config\.json has no tensors"):
        import_model(tmp_path / "runs", folder / "config.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda bias: bias * torch.nan, r"fc1\.bias' has values that are not finite"),
        (torch.Tensor.char, r"fc1\.bias' has dtype int8; a weight must be float32, float16, bfloat16 or float64"),
    ],
    ids=["nan", "int8"],
)
def test_numbers_that_are_not_those_of_weights_are_refused(tmp_path, change, message):
    state = tensors(MARIAN)
    state["model.encoder.layers.0.fc1.bias"] = change(state["model.encoder.layers.0.fc1.bias"])
    with pytest.raises(LabError, match=message):
        import_model(tmp_path / "runs", write_folder(tmp_path / "m", MARIAN, state))


def test_objects_are_never_unpickled(tmp_path):
    folder = write_folder(tmp_path / "m", MARIAN)
    (folder / "model.safetensors").unlink()
    torch.save({"weights": Touch(tmp_path / "touched")}, folder / "pytorch_model.bin")
    with pytest.raises(LabError, match="holds more than tensors"):
        import_model(tmp_path / "runs", folder)
    assert not (tmp_path / "touched").exists()


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


# --- text ---------------------------------------------------------------------------------------------------------


def test_text_is_split_and_joined_as_sentencepiece_does(tmp_path):
    folder = write_marian_text_model(tmp_path / "m")
    source, target = imported(tmp_path, folder).task.subwords.sides
    for side, name in ((source, "source.spm"), (target, "target.spm")):
        theirs = sentencepiece_model(folder / name)
        for text in SENTENCES:
            code, rest = (">>deu<<", text[7:]) if text.startswith(">>deu<<") else ("", text)
            assert side.tokenize(text) == [*([code] if code else []), *theirs.encode(rest, out_type=str)]
        pieces = theirs.encode(TEXTS[0], out_type=str)
        assert side.detokenize(pieces) == theirs.decode_pieces(pieces)


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bpe"},
        {"byte_fallback": True, "vocab_size": 350},
        {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        {"normalization_rule_name": "nfkc_cf"},
    ],
    ids=lambda options: "-".join(options),
)
def test_every_kind_of_sentencepiece_model_splits_text_alike(tmp_path, options):
    folder = write_marian_text_model(tmp_path / "m")
    theirs = train_sentencepiece(folder / "source.spm", **options)
    ours = imported(tmp_path, folder).task.subwords.source
    assert [ours.tokenize(text) for text in SENTENCES[:-2]] == [
        theirs.encode(text, out_type=str) for text in SENTENCES[:-2]
    ]


def sentencepiece_model(file: Path):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(file))


def test_pieces_have_the_ids_of_the_vocabulary_and_others_are_unknown(tmp_path):
    folder = write_marian_text_model(tmp_path / "m")
    loaded, names = imported(tmp_path, folder), json.loads((folder / "vocab.json").read_text())
    table = tensors(json.loads((folder / "config.json").read_text()))["model.shared.weight"]
    symbols = loaded.task.tokenize("the dog Ж")
    ids = loaded.task.src_vocab.encode(symbols)
    assert UNK_ID in ids
    expected = table[[names.get(symbol, names["<unk>"]) for symbol in symbols]]
    assert torch.equal(loaded.model.tgt_embedding.tokens.weight[ids], expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"user_defined_symbols": ["xyz"]}, "user-defined pieces"),
        ({"add_dummy_prefix": False}, "add_dummy_prefix=False"),
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix"),
        ({"model_type": "char"}, "model_type=4"),
    ],
    ids=str,
)
def test_other_sentencepiece_models_are_refused(tmp_path, settings, message):
    folder = write_marian_text_model(tmp_path / "m")
    train_sentencepiece(folder / "target.spm", **settings)
    with pytest.raises(LabError, match=rf"target\.spm has {message}"):
        import_model(tmp_path / "runs", folder)


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x0a\x05\x0a\x03abc\x12\xff", b"PK\x03\x04"], ids=str)
def test_damaged_sentencepiece_models_are_refused(tmp_path, content):
    folder = write_marian_text_model(tmp_path / "m")
    (folder / "source.spm").write_bytes(content)
    with pytest.raises(LabError, match=r"source\.spm is not a SentencePiece model"):
        import_model(tmp_path / "runs", folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 0, "b": 0}', "have the same id 0"),
        ('{"a": 1000}', "has id 1000; ids are below"),
        ("[]", "is not a JSON object"),
    ],
)
def test_damaged_vocabularies_are_refused(tmp_path, content, message):
    folder = write_marian_text_model(tmp_path / "m")
    (folder / "vocab.json").write_text(content)
    with pytest.raises(LabError, match=message):
        import_model(tmp_path / "runs", folder)


ANY_TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cn"], exclude_characters="\u2581\x1c\x1d\x1e\x1f"), max_size=60
)


@settings(max_examples=200, deadline=None)
@given(text=ANY_TEXT)
def test_words_of_byte_level_bpe_are_those_of_its_regular_expression(text):
    assert list(split_words(text)) == regex.findall(GPT2, text)


@given(content=st.binary(max_size=12))
def test_the_name_of_a_piece_stands_for_its_bytes(content):
    assert content_of(piece_of(content)) == content


def bart_text_model(tmp_path: Path, form: str) -> tuple[Path, dict[str, int], list[tuple[str, str]]]:
    names, merges = learn_merges(TEXTS, 60)
    folder = write_folder(tmp_path / "b", BART | {"vocab_size": len(names)})
    if form == "merges.txt":
        (folder / "vocab.json").write_text(json.dumps(names))
        (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{' '.join(pair)}\n" for pair in merges))
    else:
        model = {"type": "BPE", "vocab": names, "merges": list(map(list, merges))}
        (folder / "tokenizer.json").write_text(json.dumps({"model": model}))
    return folder, names, merges


@pytest.mark.parametrize("form", ["merges.txt", "tokenizer.json"])
def test_byte_level_bpe_merges_in_the_learned_order(tmp_path, form):
    folder, names, merges = bart_text_model(tmp_path, form)
    loaded = imported(tmp_path, folder)
    state = tensors(BART | {"vocab_size": len(names)})["model.shared.weight"]
    embedded = loaded.model.src_embedding.tokens.weight
    for text in SENTENCES:
        if not text.strip():
            continue
        symbols = loaded.task.tokenize(text)
        expected = [names[piece] for word in regex.findall(GPT2, text) for piece in merged(word, merges)]
        assert torch.equal(embedded[loaded.task.src_vocab.encode(symbols)], state[expected])
        assert loaded.task.source_text(symbols) == text
    assert loaded.task.tokenize("open <mask> document")[-2:] != ["<mask>"]
    assert "<mask>" in loaded.task.tokenize("open <mask> document")


def merged(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Apply every merge to a word, in the order they were learned."""
    from core.text.byte_bpe import alphabet

    letters = {byte: letter for letter, byte in alphabet().items()}
    pieces = [letters[byte] for byte in word.encode()]
    for pair in merges:
        pieces = merge_in(pieces, pair)
    return pieces


# --- a run --------------------------------------------------------------------------------------------------------


def test_a_run_is_exported_and_imported_like_any_other(tmp_path):
    first = imported(tmp_path, write_marian_text_model(tmp_path / "m"))
    folder, _ = import_model(tmp_path / "runs", tmp_path / "m", name="one")
    export_weights(folder, tmp_path / "file.safetensors")
    second = load_run(import_run(tmp_path / "runs", tmp_path / "file.safetensors", name="two").path)
    src = torch.tensor([[BOS_ID, *first.task.src_vocab.encode(first.task.tokenize(TEXTS[0])), EOS_ID]])[:, :20]
    outputs = [generate(each.model, src, max_steps=9).tokens for each in (first, second)]
    assert torch.equal(*outputs)
    assert second.task.subwords == first.task.subwords
    assert SubwordTokenizers.from_json(first.task.subwords.model_dump_json(), "x") == first.task.subwords


def test_the_command_line_opens_it(tmp_path, capsys):
    write_marian_text_model(tmp_path / "m", max_position_embeddings=64)
    (tmp_path / "pairs.tsv").write_text("".join(f"{text[:20]}\t{text[:12]}\n" for text in TEXTS))
    root = ["--checkpoints", str(tmp_path / "runs")]
    assert main([*root, "import-model", str(tmp_path / "m"), "--run", "plain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["run"] == "plain"
    paired = ["--run", "paired", "--pairs", str(tmp_path / "pairs.tsv")]
    assert main([*root, "import-model", str(tmp_path / "m"), *paired]) == 0
    beam = ["--strategy", "beam", "--beam-size", "4", "--n-best", "2", "--ablate", "cross.2.1"]
    for name in ("plain", "paired"):
        assert main([*root, "decode", "--run", name, "the lazy dog", *beam]) == 0
    capsys.readouterr()
    for command in ("evaluate", "report", "analyze"):
        assert main([*root, command, "--run", "plain"]) == 2
        assert "imported without pairs" in capsys.readouterr().err
        assert main([*root, command, "--run", "paired", "--sequences", "4"]) == 0
    assert main([*root, "resume", "--run", "plain"]) == 2


def test_tokenizers_of_another_preset_are_refused(tmp_path):
    run, _ = import_model(tmp_path / "runs", write_folder(tmp_path / "m", MARIAN))
    preset = run.path / "preset.yaml"
    preset.write_text(
        without_checksum(preset.read_bytes())
        .decode()
        .replace("joint_vocabulary: True", "joint_vocabulary: False")
        .replace("tie_embeddings: all", "tie_embeddings: none")
    )
    with pytest.raises(LabError, match=r"subwords\.json does not have task\.joint_vocabulary=False"):
        load_run(run.path)
    (run.path / "subwords.json").unlink()
    with pytest.raises(LabError, match=r"needs subwords\.json"):
        load_run(run.path)


def test_the_doctor_takes_an_imported_model_for_a_trained_one(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{source} 7\n" for source in range(4, 14)))
    folder = write_folder(tmp_path / "m", MARIAN)
    loaded = imported(tmp_path, folder, tmp_path / "pairs.tsv")
    findings = {each.check: each for each in examine_state("it", training_state_of(loaded), None).findings}
    assert findings["initial loss"].light == "gray"
    assert "another program" in findings["initial loss"].sentence
    assert not any("not trained yet" in each.sentence for each in findings.values())


def test_pairs_are_measured_whatever_the_split(tmp_path):
    (tmp_path / "pairs.tsv").write_text("5 6\t7 8\n5 6\t9\n4\t4 4\ttest\n")
    folder = write_folder(tmp_path / "m", MARIAN)
    task = imported(tmp_path, folder, tmp_path / "pairs.tsv").task
    assert {split: len(task.all_pairs(split)) for split in ("train", "validation", "test")} == {
        "train": 2,
        "validation": 2,
        "test": 2,
    }
    assert [task.answer_text(each) for each in task.references(task.tokenize(" 5  6"))] == ["7 8", "9"]
    assert task.examples == ("5 6", "4")
    with pytest.raises(InputError, match="'99' at position 2 is not one of the 18 tokens"):
        task.tokenize("4 99")
