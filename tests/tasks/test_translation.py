"""Translation: a corpus split by page, subwords learned from its training pairs only, and every line restored."""

from pathlib import Path

import pytest

from core.__main__ import main
from core.config.tasks import HELP_SENTENCES, SUBWORDS, TranslationConfig
from core.tasks import build_task, translation
from core.tasks.ingest.libreoffice_help import HelpPair, read_help, split_by_page
from core.tasks.pairs import SPLITS
from core.tasks.subword_pairs import MAX_BYTES
from core.tasks.translation import CORPUS, corpus
from core.text.subwords import SubwordError

CONFIG = TranslationConfig()


@pytest.fixture(scope="module")
def task():
    return build_task(CONFIG)


@pytest.fixture
def short_corpus(monkeypatch):
    """Every tenth pair of the corpus, from which vocabularies are quick to learn."""
    pairs, split = corpus()
    short = pairs[::10], split[::10]
    monkeypatch.setattr(translation, "corpus", lambda: short)
    translation._tokenizers.cache_clear()
    yield short
    translation._tokenizers.cache_clear()


def test_the_corpus_has_the_counts_that_its_readme_states():
    pairs, split = corpus()
    counts = {name: int((split == index).sum()) for index, name in enumerate(SPLITS)}
    assert counts == {"train": 31_394, "validation": 958, "test": 1_120}
    assert len(set(pairs)) == len(pairs) == 33_472
    assert CORPUS.stat().st_size < 1_500_000


def test_held_out_sources_are_not_trained_on():
    pairs, split = corpus()
    sources = [{pair[0] for pair, at in zip(pairs, split.tolist(), strict=True) if at == index} for index in range(3)]
    assert not sources[0] & sources[1]
    assert not sources[0] & sources[2]
    assert not sources[1] & sources[2]


def test_every_line_of_the_corpus_is_restored(task):
    source, target = task.tokenizers
    for text, answer in corpus()[0]:
        assert source.detokenize(source.tokenize(text)) == text
        assert target.detokenize(target.tokenize(answer)) == answer


def test_subwords_are_learned_from_the_training_pairs_only(short_corpus, monkeypatch):
    pairs, split = short_corpus
    small = TranslationConfig(vocabulary_size=600)
    learned = build_task(small).subwords
    replaced = tuple(pair if at == 0 else ("ÿÿÿÿ", "ÿÿÿÿ") for pair, at in zip(pairs, split.tolist(), strict=True))
    assert replaced != pairs
    monkeypatch.setattr(translation, "corpus", lambda: (replaced, split))
    translation._tokenizers.cache_clear()
    assert build_task(small).subwords == learned


def test_typed_text_comes_back_and_has_its_references(task):
    pairs, split = corpus()
    source, answer = pairs[split.tolist().index(SPLITS.index("test"))]
    symbols = task.tokenize(source)
    assert task.source_text(symbols) == source
    assert [task.answer_text(tokens) for tokens in task.references(symbols)] == [answer]
    assert task.note(symbols) == ""
    assert task.answer(task.tokenize("A sentence that nobody wrote.")) == []


def test_a_side_may_have_its_own_vocabulary(short_corpus):
    config = TranslationConfig(joint_vocabulary=False, vocabulary_size=500)
    task = build_task(config)
    assert not config.shared_vocabulary
    assert task.src_vocab.tokens != task.tgt_vocab.tokens
    assert len(task.src_vocab) == len(task.tgt_vocab) == 503


def test_the_lower_bound_of_sources_holds():
    table = build_task(TranslationConfig(max_length=20, vocabulary_size=400)).table  # the shortest and most pieces
    assert len(set(table.keys.tolist())) >= HELP_SENTENCES


def test_saved_tokenizers_are_used_and_checked(tmp_path: Path, short_corpus):
    small = build_task(TranslationConfig(vocabulary_size=600)).subwords
    (tmp_path / SUBWORDS).write_text(small.model_dump_json())
    assert build_task(CONFIG, pairs=tmp_path / "pairs.tsv").subwords == small
    for config, reason in (
        (TranslationConfig(vocabulary_size=500), "vocabulary_size=500"),
        (TranslationConfig(subword_algorithm="unigram"), "subword_algorithm='unigram'"),
        (TranslationConfig(joint_vocabulary=False), "joint_vocabulary=False"),
    ):
        with pytest.raises(SubwordError, match=reason):
            build_task(config, pairs=tmp_path / "pairs.tsv")
    (tmp_path / SUBWORDS).write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(SubwordError, match="the limit is"):
        build_task(CONFIG, pairs=tmp_path / "pairs.tsv")


# ---- the script that makes the corpus


def page(paragraphs: str) -> str:
    return f"<html><body><header><p>Menu</p></header><div>{paragraphs}</div></body></html>"


@pytest.fixture
def help_folder(tmp_path: Path) -> Path:
    def switch(mac: str, other: str) -> str:
        return f'<span class="switchinline"><span class="MAC" hidden>{mac}</span><span>{other}</span></span>'

    texts = {
        "en-US": '<h1 id="h">Open a <b>file</b></h1><p id="a">Press '
        + switch("Command", "Ctrl")
        + '+O &amp;<br>go</p><p id="b">only here</p><p id="c">OK</p>',
        "de": '<h1 id="h">Eine Datei öffnen</h1><p id="a">Drücken Sie '
        + switch("Befehl", "Strg")
        + '+O &amp;<br>los</p><p id="c">OK</p><p>ohne id</p>',
    }
    for language, text in texts.items():
        (tmp_path / language / "text" / "swriter").mkdir(parents=True)
        (tmp_path / language / "text" / "swriter" / "main.html").write_text(page(text))
    return tmp_path


def test_paragraphs_with_one_id_are_a_pair(help_folder: Path):
    assert list(read_help(help_folder, ("en-US", "de"))) == [
        HelpPair("swriter/main", "Open a file", "Eine Datei öffnen"),
        HelpPair("swriter/main", "Press Ctrl+O & go", "Drücken Sie Strg+O & los"),
    ]


def test_pages_are_in_one_split_and_their_sources_in_no_other():
    pairs = [HelpPair(f"page{n // 8}", f"source number {n % 500}", f"Ziel {n}") for n in range(4_000)]
    kept = [*split_by_page([*pairs, HelpPair("long", "word " * 41, "lang"), HelpPair("page1", "OK", "Gut")])]
    splits_of_page: dict[str, set[str]] = {}
    splits_of_source: dict[str, set[str]] = {}
    for pair, split in kept:
        splits_of_page.setdefault(pair.page, set()).add(split)
        splits_of_source.setdefault(pair.source, set()).add(split)
    assert all(len(splits) == 1 for splits in [*splits_of_page.values(), *splits_of_source.values()])
    assert "long" not in splits_of_page
    distinct = [HelpPair(f"page{n // 8}", f"source number {n}", f"Ziel {n}") for n in range(4_000)]
    counts = [sum(split == name for _, split in split_by_page(distinct)) for name in ("test", "validation")]
    assert all(100 < count < 240 for count in counts)  # one page in 25 each


def test_the_command_writes_pairs_and_refuses_what_is_there(help_folder: Path, tmp_path: Path, capsys):
    out = tmp_path / "pairs.tsv"
    arguments = ["corpus", "help", "de", "--help-folder", str(help_folder), "--out", str(out)]
    assert main(arguments) == 0
    assert "training pairs" in capsys.readouterr().out
    assert [line.split("\t")[:2] for line in out.read_text().splitlines()] == [
        ["Open a file", "Eine Datei öffnen"],
        ["Press Ctrl+O & go", "Drücken Sie Strg+O & los"],
    ]
    assert main(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["corpus", "help", "fr", "--help-folder", str(help_folder), "--out", str(tmp_path / "fr.tsv")]) == 2
    assert "language='fr' has no pages" in capsys.readouterr().err
