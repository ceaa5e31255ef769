"""Runs that begin with the weights of another run: as by hand, resumed, alone, given away, and refused by name."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from core.__main__ import main
from core.config import ConfigError, Preset
from core.config.tasks import SUBWORDS, VOCABULARY
from core.runs import DEFAULT_ROOT, Run, RunFolder, Runs
from core.runs.export import export_package, export_weights
from core.runs.importing import import_run, import_weights
from core.runs.importing_models import import_model
from core.runs.model_card import model_card
from core.runs.training_state import resume_state
from core.storage.errors import CheckpointError, LabError
from core.storage.tensor_file import read_tensors, serialize
from core.tasks.ingest import PairFiles, prepare_preset
from core.tasks.ingest.pairs import Kinds
from core.tasks.vocabularies import StoredVocabularies, vocabulary_hash
from core.teaching.bugs import new_state
from core.text.vocab import Vocab
from core.training.loop import train
from core.training.state import TrainingState
from tests.support.command_output import last_json
from tests.support.foreign_models import write_marian_text_model
from tests.support.training_events import comparable
from tests.support.trainings import assert_ends_alike, train_run

TINY = {"model.d_model": 8, "model.d_ff": 8, "model.num_heads": 2, "training.steps": 6, "training.evaluate_every": 3}
TINY |= {"training.warmup_steps": 0, "model.dropout": 0.1}
PLAIN: Kinds = ("character", "character")


def write_pairs(path: Path, lines: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{answer}\n" for source, answer in lines), encoding="utf-8")
    return path


def own_preset(folder: Path, lines: list[tuple[str, str]], name: str, kinds: Kinds = PLAIN) -> tuple[Preset, Path]:
    """A small preset of own pairs, and their file."""
    pairs = folder / f"{name}.pairs.tsv"
    _, preset = prepare_preset(PairFiles(write_pairs(folder / f"{name}.tsv", lines)), pairs, kinds=kinds, name=name)
    return preset.with_changes(TINY), pairs


def reversed_numbers(numbers: range, letters: str = "abcdefghij") -> list[tuple[str, str]]:
    return [
        (text, text[::-1]) for text in ("".join(letters[int(digit)] for digit in str(number)) for number in numbers)
    ]


@pytest.fixture
def runs(root: Path) -> Runs:
    return Runs(root)


Own = tuple[Preset, Path]


@pytest.fixture(scope="module")
def few_letters(tmp_path_factory: pytest.TempPathFactory) -> Own:
    """A preset of pairs that lack three of the ten letters, and their file."""
    few = [(source, answer) for source, answer in reversed_numbers(range(100, 900)) if not set("bdf") & set(source)]
    return own_preset(tmp_path_factory.mktemp("few"), few, "few")


@pytest.fixture(scope="module")
def trained_letters(tmp_path_factory: pytest.TempPathFactory, few_letters: Own) -> Path:
    """A folder with a trained run that reverses words of ten letters, and one that began with it."""
    folder = tmp_path_factory.mktemp("letters")
    runs, (preset, pairs) = Runs(folder / "runs"), own_preset(folder, reversed_numbers(range(100, 300)), "letters")
    train_run(runs.create(preset, name="letters", pairs=pairs).folder)
    preset, pairs = few_letters
    train_run(runs.create(preset, name="few", pairs=pairs, start_from="letters").folder)
    return runs.root


@pytest.fixture
def letters(trained_letters: Path, runs: Runs) -> Run:
    """A trained run that reverses words of ten letters."""
    shutil.copytree(trained_letters / "letters", runs.root / "letters")
    return runs["letters"]


@pytest.fixture
def few(trained_letters: Path, runs: Runs, letters: Run) -> Run:
    """A trained run with fewer letters that began with ``letters``."""
    shutil.copytree(trained_letters / "few", runs.root / "few")
    return runs["few"]


@pytest.fixture
def first(finished: Path, runs: Runs) -> Run:
    """A trained run of ``tiny``."""
    shutil.copytree(finished, runs.root / "first")
    return runs["first"]


def events_of(state: TrainingState) -> list[tuple]:
    return comparable(train(state))


# --- the same as by hand --------------------------------------------------------------------------------------------


def test_a_run_continued_on_other_pairs_is_the_training_that_one_writes_by_hand(tmp_path, runs, letters):
    preset, pairs = own_preset(tmp_path, reversed_numbers(range(1000, 1300)), "more")
    continued = runs.create(preset, pairs=pairs, start_from="letters")
    by_hand = new_state(preset, pairs=pairs)  # its pairs have the same ten letters
    by_hand.model.load_state_dict(letters.trained().model.state_dict())
    expected = events_of(by_hand)
    assert events_of(resume_state(continued.folder)) == expected
    assert events_of(new_state(preset, pairs=pairs)) != expected  # with random weights


def test_letters_keep_their_embeddings_where_the_pairs_lack_some(few_letters, letters, few):
    preset, pairs = few_letters
    assert few.task().src_vocab.tokens == letters.task().src_vocab.tokens
    assert len(new_state(preset, pairs=pairs).task.src_vocab) == len(few.task().src_vocab) - 3
    assert few.trained().decode("ace").output


def test_an_imported_model_learns_own_pairs_with_its_own_subwords(tmp_path, runs):
    write_marian_text_model(tmp_path / "opus", max_position_embeddings=64)
    folder, _ = import_model(runs.root, tmp_path / "opus", name="opus")
    opus = runs[folder.name]
    lines = [(f"Press Enter {number} times", f"Drücken Sie Enter {number}") for number in range(40)]
    preset, pairs = own_preset(tmp_path, lines, "help", ("subword", "subword"))
    model = {f"model.{key}": value for key, value in opus.preset.model.model_dump().items()}
    run = runs.create(preset.with_changes(model), name="tuned", pairs=pairs, start_from="opus")
    assert (run.folder.path / SUBWORDS).read_bytes() == (folder.path / SUBWORDS).read_bytes()
    state = resume_state(run.folder)
    kept = [state.task.all_pairs(split) for split in ("train", "validation", "test")]
    assert sum(map(len, kept)) == len(lines)  # none is too long, though the model's subwords are shorter
    assert_close(dict(state.model.state_dict()), dict(opus.trained().model.state_dict()), rtol=0, atol=0)
    train_run(run.folder)
    assert run.info.start is not None
    assert (run.info.start.text, run.info.step) == ("opus after step 0", 6)
    assert run.trained().task.subwords == opus.trained().task.subwords
    export_package(run.folder, tmp_path / "tuned.zip")
    again = Runs(tmp_path / "elsewhere")
    imported = again[import_run(again.root, tmp_path / "tuned.zip").name]
    assert imported.info.start == run.info.start
    text = "Press Enter 3 times"
    assert imported.trained().decode(text).output == run.trained().decode(text).output


# --- resumed, and alone ---------------------------------------------------------------------------------------------


def test_such_a_run_resumes_bit_for_bit_after_the_first_one_was_deleted(tiny, runs, first):
    changes = {"training.seed": 5, "model.dropout": 0.2, "model.max_seq_len": 20, "task.max_length": 12}
    preset = tiny.with_changes(changes)
    straight, stopped = (runs.create(preset, name=name, start_from="first") for name in ("straight", "stopped"))
    shutil.rmtree(runs["first"].folder.path)
    train_run(straight.folder)
    train_run(stopped.folder, stop_after=3)
    (stopped.folder.start).unlink()  # not needed any more
    train_run(stopped.folder)
    assert_ends_alike(straight.folder, stopped.folder)
    assert straight.info.start is not None
    assert straight.info.start.run == "first"


def test_a_run_without_the_weights_that_it_begins_with_does_not_begin_with_others(runs, first):
    run = runs.create(start_from="first", name="second")
    run.folder.start.unlink()
    with pytest.raises(CheckpointError, match=r"start\.safetensors cannot be read: No such file"):
        resume_state(run.folder)


def test_everything_but_the_weights_starts_anew(tiny, runs, first):
    state = resume_state(runs.create(start_from="first").folder)
    assert (state.step, state.optimizer.state, state.best_step) == (0, {}, -1)
    fresh = new_state(tiny)
    assert torch.equal(state.generator.get_state(), fresh.generator.get_state())


# --- what a run says of it ------------------------------------------------------------------------------------------


def test_weights_say_where_they_began_and_take_their_vocabulary_with_them(tmp_path, letters, few):
    loaded = few.trained()
    card = model_card(loaded, few.info, title=few.title)
    assert f"| began with | the weights of letters after step {letters.trained().step} |" in card
    export_package(few.folder, tmp_path / "package")
    again = Runs(tmp_path / "elsewhere")
    imported = again[import_run(again.root, tmp_path / "package", name="few").name]
    assert imported.info.start == few.info.start
    assert imported.task().src_vocab.tokens == loaded.task.src_vocab.tokens
    assert imported.trained().decode("ace").output == loaded.decode("ace").output
    export_weights(imported.folder, tmp_path / "w.safetensors")
    third = again.create(start_from="few")  # from a run that itself has the vocabulary of another
    assert (third.folder.path / VOCABULARY).read_bytes() == (few.folder.path / VOCABULARY).read_bytes()


def test_vocabularies_have_the_hash_by_which_runs_of_earlier_versions_name_them():
    shipped = Runs(DEFAULT_ROOT)["translate-en-de-shipped"].trained().task.subwords
    assert shipped is not None
    assert vocabulary_hash(shipped) == "4823ce0e6638ccf56bbec3e27159bc26cc22b77171b9c2d732c2442d736259cc"
    letters = StoredVocabularies.of(Vocab(["a", "b"]), Vocab(["c"]))
    assert vocabulary_hash(letters) == "b35d2681664d465a7ed32f7bf5b18ac28e298075d5fe526bc6f73b21fb546716"


def test_other_vocabularies_beside_a_run_are_noticed(few):
    file = few.folder.path / VOCABULARY
    intact = file.read_text()
    file.write_text(intact.replace('"a"', '"z"', 1))
    with pytest.raises(ConfigError, match=r"vocabulary\.json was changed after it was written"):
        few.task()
    file.write_text(intact)
    content = json.loads(file.read_text())
    content.pop("sha256")
    content["source"]["symbols"].reverse()
    file.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"task\.vocabulary=.*vocabulary\.json holds other vocabularies"):
        few.task()
    file.unlink()
    with pytest.raises(ConfigError, match="these vocabularies are missing"):
        few.task()


@pytest.mark.parametrize(
    ("fact", "value", "message"),
    [
        ("vocabulary", None, "its vocabularies are missing"),
        ("vocabulary", '{"source": 1}', "its vocabularies: source=1 should be"),
        ("vocabulary", '{"source": {"symbols": ["a", "a"], "has_unk": true}, "target": null}', "must differ"),
        ("vocabulary", '{"source": {"symbols": ["<EOS>"], "has_unk": true}, "target": null}', "must differ"),
        ("vocabulary", '{"source": {"symbols": ["a"], "has_unk": true}, "target": null}', "holds other vocabularies"),
        ("start", {"run": "<b>", "step": 1, "sha256": "0" * 64}, "start.run='<b>' should match"),
    ],
)
def test_weights_with_other_facts_are_refused(tmp_path, few_letters, trained_letters, fact, value, message):
    _, pairs = few_letters
    tensors, facts = read_tensors(RunFolder(trained_letters, "few").best)
    facts |= {fact: value}
    with pytest.raises(LabError, match=message):
        import_weights(tmp_path / "elsewhere", serialize(tensors, facts), pairs=pairs)
    assert not list(Runs(tmp_path / "elsewhere"))


# --- refused by name ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.d_model": 32}, "model.d_model=32, and first has 16"),
        ({"model.num_heads": 4}, "model.num_heads=4, and first has 2"),
        ({"model.norm": "pre", "model.positions": "learned"}, "model.positions='learned', and first has 'sinusoidal'"),
        ({"model.family": "gru"}, "model.family='gru', and first has 'transformer'"),
        ({"task.family": "addition"}, "the task has 1 source tokens that first does not know: +"),
    ],
)
def test_another_model_or_vocabulary_is_refused_by_name(tiny, runs, first, changes, message):
    with pytest.raises(ConfigError) as error:
        runs.create(tiny.with_changes(changes), name="second", start_from="first")
    assert message in str(error.value)
    assert list(runs) == ["first"]


def test_a_longer_table_of_learned_positions_is_refused(tiny, runs):
    preset = tiny.with_changes({"model.positions": "learned"})
    train_run(runs.create(preset, name="first").folder)
    with pytest.raises(ConfigError, match=r"model\.max_seq_len=20, and first has 16"):
        runs.create(preset.with_changes({"model.max_seq_len": 20}), start_from="first")


def test_unknown_characters_are_refused_by_name_unless_they_are_rare(tmp_path, runs, letters):
    lines = [*reversed_numbers(range(100, 300)), *[(f"{letter}a", f"a{letter}") for letter in "klmnopqrstuv"]]
    preset, pairs = own_preset(tmp_path, [*lines, *[(f"a{source}", answer) for source, answer in lines]], "more")
    preset = preset.with_changes({"task.test_percent": 1, "task.validation_percent": 1})
    with pytest.raises(ConfigError) as error:
        runs.create(preset, pairs=pairs, start_from="letters")
    assert "the pairs have 12 characters that letters does not know: k l m n o p q r s t u v" in str(error.value)
    rare = preset.with_changes({"task.min_count": 5})
    run = runs.create(rare, pairs=pairs, start_from="letters")
    assert run.task().src_vocab.tokens == letters.task().src_vocab.tokens


def test_other_kinds_of_tokens_are_refused(tmp_path, runs, letters):
    lines = [(f"{source} x", answer) for source, answer in reversed_numbers(range(100, 300))]
    preset, pairs = own_preset(tmp_path, lines, "words", ("word", "word"))
    with pytest.raises(ConfigError, match=r"task\.source_tokens='word', and letters has 'character'"):
        runs.create(preset, pairs=pairs, start_from="letters")
    preset, pairs = own_preset(tmp_path, lines, "pieces", ("subword", "subword"))
    with pytest.raises(ConfigError, match=r"task\.source_tokens='subword', and letters has 'character'"):
        runs.create(preset, pairs=pairs, start_from="letters")


def test_an_imported_model_has_nothing_to_train_on_by_itself(tmp_path, runs):
    import_model(runs.root, write_marian_text_model(tmp_path / "opus"), name="opus")
    with pytest.raises(ConfigError, match="opus was imported from another program, with nothing here to train it on"):
        runs.create(start_from="opus")


# --- the command line -----------------------------------------------------------------------------------------------


def test_train_from_a_run(tiny, root, first, capsys):
    def core(*arguments: str) -> int:
        return main(["--checkpoints", str(root), "train", "--from", "first", *arguments])

    assert core("--set", "training.steps=2", "--set", "training.warmup_steps=1", "--seed", "4", "--json") == 0
    name = last_json(capsys.readouterr().out)["run"]
    run = Runs(root)[name]
    assert (run.preset.training.seed, run.preset.model, run.info.step) == (4, tiny.model, 2)
    assert run.info.provenance[0].command.startswith("train --from first --seed 4")
    assert core("--seeds", "2", "--run", "both") == 0
    starts = {Runs(root)[f"both-seed-{seed}"].info.start for seed in (0, 1)}
    assert starts == {run.info.start}
    assert core("--preset", "addition") == 2
    assert "and first has" in capsys.readouterr().err
