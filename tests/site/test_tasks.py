"""The site's scripts read typed text and know its answer as the program does."""

import json
import random
import re

import pytest
import torch
from playwright.sync_api import Browser, Page

from core.config import load_preset
from core.generation.reading import read_input
from core.models import build_model
from core.runs import DEFAULT_ROOT, Run, RunFolder
from core.runs.importing_models import import_model
from core.storage.errors import InputError
from core.tasks import build_task
from core.text.pieces import sentence_of
from core.text.sentences import split_sentences
from core.text.validation import validate_text
from tests.support.foreign_models import BART, write_folder
from tests.text.test_sentences import SPLIT
from ui.site.build import HERE
from ui.site.labs import preset_lab, run_lab
from ui.site.model_facts import model_facts
from ui.subword_texts import words_of

TYPED = (
    "4 8 2 9",
    "4829",
    " 4,8, 2 ",
    "",
    "   ",
    "4 x 2",
    "12 7",
    "0007 + 12",
    "7+",
    "99+1",
    "the cat",
    "The fox, hot.",
    "1 2 3 + 4 5",
    "🙂",
    "Army",
    "  half-life ",
    "naïve",
    "1.2",
    "4\ufeff8",
    "4\x0b8",
    "4\u200b8",
    "4\u00858",
    "4\u20288",
    "fox\u200b hot",
    "9" * 2001,
    "𝟗" * 2001,
)
NO_REFERENCE = "not among the pairs, so there is no reference answer"
PRESETS = (
    *("digits-reversal-fast", "sort-digits", "deduplicate-digits", "copy-digits"),
    *("numbers-reversal", "words-reversal-transformer", "addition", "plurals"),
)


@pytest.fixture(scope="module")
def scripts(chromium: Browser):
    """A page with the modules ``tasks`` and ``subwords``."""
    page = chromium.new_page()
    names = ("problem", "text", "subwords", "tasks")  # each after those that it imports
    files = {name: (HERE / "scripts" / f"{name}.js").read_text() for name in names}
    page.evaluate(
        """(files) => {
          const addresses = {};
          for (const [name, source] of Object.entries(files)) {
            const whole = source.replace(/"\\.\\/(\\w+)\\.js"/g, (_, imported) => JSON.stringify(addresses[imported]));
            addresses[name] = URL.createObjectURL(new Blob([whole], { type: "text/javascript" }));
            window[name] = import(addresses[name]);
          }
        }""",
        files,
    )
    return page


@pytest.fixture(scope="module")
def solved(scripts: Page):
    """Returns a function that tokenizes and solves texts with the scripts."""
    return lambda facts, texts: scripts.evaluate(
        """async ([facts, texts]) => {
          const { lengthNote, readInput, solve } = await tasks;
          return texts.map((text) => {
            try {
              const read = readInput(facts, text);
              return { ...read, ...solve(facts, read.symbols), lengths: lengthNote(facts, read.symbols) };
            } catch (error) {
              return { problem: error.message };
            }
          });
        }""",
        [facts, texts],
    )


def expected(task, model, text):
    try:
        read = read_input(model, task, validate_text("input", text, max_length=2000))
    except InputError as error:
        return str(error)
    symbols = read.symbols
    return {
        "symbols": symbols,
        "note": read.note,
        "answer": task.answer(symbols),
        "sources": task.gold_alignment(symbols),
        "lengths": task.note(symbols).removeprefix(NO_REFERENCE).removeprefix("; "),  # the site has no pairs
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_typed_text_is_read_and_answered_as_by_the_program(solved, preset):
    config = load_preset(preset)
    task = build_task(config.task)
    model = build_model(config.model, task, torch.Generator().manual_seed(0))
    facts = json.loads(json.dumps(model_facts(config, task, model)))
    draw = random.Random(0)  # noqa: S311 - no secret
    drawn = [" ".join(draw.choices(task.src_vocab.symbols, k=draw.randint(1, 12))) for _ in range(200)]
    sums = [f"{draw.randint(0, 999)} + {draw.randint(0, 99)}" for _ in range(100)]
    texts = [*TYPED, *drawn, *sums, *task.examples]
    found = solved(facts, texts)
    wanted = [expected(task, model, text) for text in texts]
    assert sum(isinstance(each, dict) for each in wanted) > 100
    assert any(each["lengths"] for each in wanted if isinstance(each, dict))
    for text, said, right in zip(texts, found, wanted, strict=True):
        assert ("problem" in said) == isinstance(right, str), text
        if isinstance(right, str):
            for words in ("which is not allowed", "characters; the maximum is", "U+200B at position"):
                assert (words in said["problem"]) == (words in right), (said, right)
        else:
            for name in ("symbols", "note", "lengths"):
                assert said[name] == right[name], text
            if preset == "plurals":
                assert said["answer"] is None  # the site has no dictionary
                continue
            assert said["answer"] == right["answer"], text
            assert said["sources"] == [each for each in right["sources"] if preset != "addition"], text


def test_sentences_are_split_into_pieces_and_words_as_by_the_program(scripts):
    trained = Run(RunFolder(DEFAULT_ROOT, "translate-en-de-shipped")).trained()
    task = trained.task
    facts = {
        "source_tokens": task.src_vocab.tokens,
        "first_symbol": task.src_vocab.first_symbol_id,
        "subword_scores": task.subwords.source.scores,
    }
    sentences = [
        *task.examples,
        "Where is the station?",
        "  two  spaces ",
        "Größe 12,5 – naïve",
        "サクラ 🙂",
        "",
        "a\tb",
        "…",
        "\ufeffsnow\u200b \x1f",
    ]
    tokens = [task.subwords.source.tokenize(each) for each in sentences]
    found = scripts.evaluate(
        """async ([facts, sentences, tokens]) => {
          const { splitText, sentenceOf, wordsOf } = await subwords;
          const split = sentences.map((each) => splitText(facts, each));
          return { split, texts: tokens.map(sentenceOf), words: tokens.map(wordsOf) };
        }""",
        [facts, sentences, tokens],
    )
    assert found["split"] == tokens
    assert found["texts"] == [sentence_of(each) for each in tokens]
    assert found["words"] == [words_of(each) for each in tokens]


def test_a_text_is_split_into_sentences_as_by_the_program(scripts):
    draw = random.Random(0)  # noqa: S311 - no secret
    alphabet = "aBä1.!?…:\"') \n\t\x0b\x1f\u2028\ufeff"
    drawn = ["".join(draw.choices(alphabet, k=draw.randint(0, 30))) for _ in range(3000)]
    texts = ["".join(each) for each in SPLIT] + drawn
    found = scripts.evaluate("async (texts) => texts.map((await text).splitSentences)", texts)
    assert found == [split_sentences(each) for each in texts]


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("digits-reversal-gru", "needs model.family=transformer or decoder-only, not gru"),
        ("digits-reversal-linear", "needs model.attention=full or window, not linear"),
        ("number-words-german", "but not inputs of this task, such as"),
        ("numbers-reversal-as-told", "the site trains no bugs, and no targets without <EOS>"),
        ("translate-en-de", "the site trains one batch of a fixed size in each update"),
        ("masked-digits", "needs model.family=transformer or decoder-only, not encoder-only"),
    ],
)
def test_models_that_the_scripts_cannot_show_are_refused(tmp_path, preset, message):
    with pytest.raises(InputError, match=f"^preset='{preset}': .*{re.escape(message)}"):
        preset_lab(load_preset(preset), tmp_path)


def test_a_curriculum_is_refused(tmp_path):
    changes = {"training.group_by_length": True, "training.curriculum_steps": 10}
    with pytest.raises(InputError, match=r"training\.curriculum_steps=10: the site trains on all lengths"):
        preset_lab(load_preset("digits-reversal").with_changes(changes), tmp_path)


def test_a_model_whose_outputs_are_forced_to_begin_with_a_token_is_refused(tmp_path):
    folder = write_folder(tmp_path / "bart", BART, generation={"forced_bos_token_id": 7})
    run, _ = import_model(tmp_path / "runs", folder)
    with pytest.raises(InputError, match=f"^run='{run.name}': its outputs are made to begin with a token"):
        run_lab(run, tmp_path)


def test_a_run_that_a_page_cannot_show_is_named(tmp_path):
    run = RunFolder.create(tmp_path, load_preset("digits-reversal-gru"), name="recurrent")
    with pytest.raises(InputError, match=r"^run='recurrent': a page without a server needs model\.family"):
        run_lab(run, tmp_path)
