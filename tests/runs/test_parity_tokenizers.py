"""Imported vocabularies number and split text as the tokenizers of ``transformers`` do, languages included."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from core.runs.importing_models import import_model
from core.runs.load import load_run
from core.storage.errors import LabError
from tests.support.foreign_models import TEXTS, train_sentencepiece

pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install -c requirements-extras.txt -e '.[parity]'"
)

from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    NllbTokenizer,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PegasusTokenizer,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)

SMALL = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
SMALL |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 256}
T5 = {"d_model": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1, "d_ff": 8}
FROM_ZERO = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
FILES = {"t5": "spiece.model", "pegasus": "spiece.model", "mbart": "sentencepiece.bpe.model"}
LANGUAGES = {"mbart": ("en_XX", "de_DE"), "m2m100": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn")}
SENTENCES = [*TEXTS, "unseen Ж and 😀", "Press Enter"]


def tokenizer_of(kind: str, folder: Path) -> Any:
    """A tokenizer of theirs, made of a SentencePiece model in the folder."""
    if kind == "m2m100":
        model = train_sentencepiece(folder / "sentencepiece.bpe.model")
        names = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(index) for index in range(3, model.vocab_size()))]
        (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
        return M2M100Tokenizer(
            vocab_file=str(folder / "vocab.json"), spm_file=str(folder / "sentencepiece.bpe.model"), src_lang="en"
        )
    if kind == "nllb":
        train_sentencepiece(folder / "sentencepiece.bpe.model", model_type="bpe")
        languages = ["eng_Latn", "deu_Latn"]
        return NllbTokenizer.from_pretrained(folder, src_lang="eng_Latn", extra_special_tokens=languages)
    train_sentencepiece(folder / FILES[kind], **({} if kind == "mbart" else FROM_ZERO))
    if kind == "mbart":
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "MBart50Tokenizer", "src_lang": "en_XX"})
        )
        return MBart50Tokenizer.from_pretrained(folder)
    return {"t5": T5Tokenizer, "pegasus": PegasusTokenizer}[kind].from_pretrained(folder)


def model_of(kind: str, size: int) -> Any:
    torch.manual_seed(0)
    if kind == "t5":
        return T5ForConditionalGeneration(T5Config(**T5, vocab_size=size, decoder_start_token_id=0))
    classes = {
        "pegasus": (PegasusForConditionalGeneration, PegasusConfig),
        "mbart": (MBartForConditionalGeneration, MBartConfig),
        "m2m100": (M2M100ForConditionalGeneration, M2M100Config),
        "nllb": (M2M100ForConditionalGeneration, M2M100Config),
    }
    fairseq = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    zero = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    model, config = classes[kind]
    return model(config(**SMALL, vocab_size=size, **(zero if kind == "pegasus" else fairseq)))


@pytest.mark.parametrize("is_saved", [False, True], ids=["published", "saved"])
@pytest.mark.parametrize("kind", ["t5", "pegasus", "mbart", "m2m100", "nllb"])
def test_text_has_the_same_tokens_and_rows(tmp_path: Path, kind: str, is_saved: bool):
    """As published, with a SentencePiece model; and as ``save_pretrained`` writes it."""
    if kind == "nllb" and not is_saved:
        pytest.skip("from SentencePiece's file alone, theirs puts languages after <mask>, as no published one does")
    folder = tmp_path / "model"
    folder.mkdir()
    theirs = tokenizer_of(kind, folder)
    model = model_of(kind, len(theirs) + (108 if kind == "m2m100" else 3))  # languages, and some without a name
    if is_saved:
        for file in folder.iterdir():
            file.unlink()
    if is_saved or kind == "m2m100":
        theirs.save_pretrained(folder)
    elif kind == "mbart":
        (folder / "special_tokens_map.json").write_text(
            json.dumps({"additional_special_tokens": theirs.extra_special_tokens})
        )
    model.save_pretrained(folder)
    languages = LANGUAGES.get(kind, (None, None))
    run, _ = import_model(tmp_path / "runs", folder, languages=languages)
    loaded = load_run(run.path)
    rows, table = loaded.model.tgt_embedding.tokens.weight, model.get_input_embeddings().weight
    task = loaded.task
    for text in SENTENCES:
        expected = theirs(text).input_ids
        pieces = task.tokenize(text)
        ours = task.src_vocab.encode(pieces)
        assert torch.equal(rows[ours], table[expected[:-1]]), text
        assert task.subwords.source.detokenize(pieces).count("<unk>") == 0
    if kind in LANGUAGES:
        target = "__de__" if kind == "m2m100" else LANGUAGES[kind][1]
        index = theirs.convert_tokens_to_ids(target)
        assert torch.equal(rows[list(loaded.model.forced_start)], table[[index]])
        decoded = loaded.decode("Press Enter")
        assert decoded.output[0] == target
        assert decoded.steps[0].forced
        assert not decoded.text.startswith(target)
        src = torch.tensor([theirs("Press Enter").input_ids])
        made = model.eval().generate(src, forced_bos_token_id=index, max_new_tokens=8, do_sample=False, num_beams=1)
        found = task.tgt_vocab.encode(list(decoded.output[:6]))
        assert torch.equal(rows[found], table[made[0, 1 : 1 + len(found)]])


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ((None, None), "target language is missing; the tokenizer has ar_AR, cs_CZ, de_DE"),
        ((None, "xx_XX"), "target language 'xx_XX' is unknown; the tokenizer has ar_AR"),
    ],
)
def test_languages_that_are_missing_or_unknown_are_named(tmp_path: Path, languages, message):
    folder = tmp_path / "model"
    folder.mkdir()
    theirs = tokenizer_of("mbart", folder)
    theirs.save_pretrained(folder)
    model_of("mbart", len(theirs)).save_pretrained(folder)
    with pytest.raises(LabError, match=message):
        import_model(tmp_path / "runs", folder, languages=languages)
