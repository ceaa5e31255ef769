"""Everyday sentences of Tatoeba: the file as its site offers it, and a split that no near-duplicate crosses."""

import zipfile
from pathlib import Path

import pytest

from core.__main__ import main
from core.storage.errors import InputError
from core.tasks.ingest.tatoeba import read_tatoeba, split_near_duplicates

CREDIT = "CC-BY 2.0 (France) Attribution: tatoeba.org #2877272 (CM) & #8597805 (Roujin)"
LINES = ["1\t2", f"Go.\tGeh.\t{CREDIT}", f"Go.\tGeh.\t{CREDIT}", f"Hi  there.\tHallo\u00a0du.\t{CREDIT}", "Run!\tLauf!"]
PAIRS = [("Go.", "Geh."), ("Hi there.", "Hallo du."), ("Run!", "Lauf!")]


def test_a_zip_of_the_site_and_its_text_have_the_pairs_without_attributions(tmp_path: Path):
    text, archive = tmp_path / "deu.txt", tmp_path / "deu-eng.zip"
    text.write_text("\n".join(LINES), encoding="utf-8")
    with zipfile.ZipFile(archive, "w") as file:
        file.write(text, "deu.txt")
        file.writestr("_about.txt", "a\tb\tc")
    assert list(read_tatoeba(text)) == list(read_tatoeba(archive)) == PAIRS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Go.\tGeh.\nGo.", r"file='x.txt', line 2: it has 1 column\(s\), and must have source, target and attribution"),
        ("a\tb\tc\td", "it has 4 column"),
        ("1\t2", "file='x.txt' has no pairs"),
    ],
)
def test_other_files_are_refused_by_line(tmp_path: Path, content: str, message: str):
    (tmp_path / "x.txt").write_text(content)
    with pytest.raises(InputError, match=message):
        list(read_tatoeba(tmp_path / "x.txt"))


def test_a_zip_without_one_text_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("_about.txt", "a\tb")
    with pytest.raises(InputError, match=r"file='x.zip' must have one \.txt file .* it has none"):
        list(read_tatoeba(tmp_path / "x.zip"))


def test_no_source_and_no_near_duplicate_of_it_is_in_two_splits():
    chains = [
        pair
        for n in range(3_000)
        for pair in (
            (f"I'm {n}x.", f"Ich bin {n}x."),
            (f"I am {n}x!", f"Ich bin {n}x!"),  # shares a target with the first
            (f"I AM {n}x", f"Das ist {n}x."),  # has the letters of the second
            (f"This is {n}x.", f"Das ist {n}x!"),  # shares a target with the third
        )
    ]
    split = dict(split_near_duplicates(chains))
    assert list(split) == sorted(chains, key=lambda pair: not split[pair])
    assert all(len({split[pair] for pair in chains[first : first + 4]}) == 1 for first in range(0, len(chains), 4))
    counts = {name: sum(each == name for each in split.values()) for name in ("test", "validation")}
    assert all(280 < count < 520 for count in counts.values())  # one group in 30 each
    assert dict(split_near_duplicates(reversed(chains))) == split


def test_a_group_that_grew_too_large_is_for_training():
    everyone = [(f"Source {n}.", "Ein Ziel.") for n in range(51)]
    assert {split for _, split in split_near_duplicates(everyone)} == {""}


def test_the_command_writes_marked_pairs_and_names_their_source(tmp_path: Path, capsys):
    (tmp_path / "deu.txt").write_text("\n".join(LINES), encoding="utf-8")
    out = tmp_path / "pairs.tsv"
    assert main(["corpus", "tatoeba", str(tmp_path / "deu.txt"), "--out", str(out)]) == 0
    assert [tuple(line.split("\t")[:2]) for line in out.read_text(encoding="utf-8").splitlines()] == PAIRS
    assert "Tatoeba, tatoeba.org, CC BY 2.0 FR" in capsys.readouterr().out
