"""Searches by Optuna: what is drawn, what is pruned, and what is left of them after a kill."""

import pytest

from core.runs.sweeps.folder import SweepError, SweepFile, SweepFolder
from core.runs.sweeps.search import OptunaSearch, most_evaluations
from core.storage.errors import LabError
from tests.runs.sweeps.conftest import make_sweep
from tests.runs.sweeps.test_driver import statuses

optuna = pytest.importorskip("optuna")

RANGES = {
    "training.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "model.d_model": {"low": 16, "high": 64, "step": 16},
    "model.norm": ["pre", "post"],
}


def random_sweep(**fields):
    return make_sweep(**{"axes": RANGES, "search": "random", "trials": 6, "seeds": 1} | fields)


def opened(root, tiny, sweep) -> OptunaSearch:
    folder = SweepFolder(root, sweep.name)
    folder.prepare(SweepFile(sweep=sweep, base=tiny), extend=True)
    return OptunaSearch(SweepFile(sweep=sweep, base=tiny), folder)


def drawn(search: OptunaSearch) -> list[dict]:
    settings = []
    while trial := search.next():
        settings.append(trial.settings)
        search.finish(trial, 1.0)
    return settings


def states(search: OptunaSearch) -> list[str]:
    return [trial.state.name for trial in search._study.get_trials()]


def test_random_settings_are_within_their_ranges_and_the_same_for_the_same_seed(root, tiny):
    settings = drawn(opened(root, tiny, random_sweep(trials=20)))
    assert len(settings) == 20
    assert {each["model.d_model"] for each in settings} == {16, 32, 48, 64}
    assert {each["model.norm"] for each in settings} == {"pre", "post"}
    rates = sorted(each["training.learning_rate"] for each in settings)
    assert 1e-4 <= rates[0] < 1e-3 < rates[-1] <= 1e-2
    assert drawn(opened(root / "b", tiny, random_sweep(trials=20))) == settings
    assert drawn(opened(root / "c", tiny, random_sweep(trials=20, seeds=[7]))) != settings


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_a_search_that_is_opened_again_draws_what_it_would_have_drawn(root, tiny, search):
    sweep = random_sweep(trials=12, search=search)
    whole = drawn(opened(root, tiny, sweep))
    first = opened(root / "b", tiny, sweep)
    some = []
    for _ in range(5):
        trial = first.next()
        some.append(trial.settings)
        first.finish(trial, 1.0)
    unfinished = first.next()
    again = opened(root / "b", tiny, sweep)
    begun = [again.next() for _ in range(6)]
    assert [trial.settings for trial in begun[:5]] == some
    assert begun[5].name == unfinished.name
    again.finish(begun[5], 1.0)
    assert [*some, unfinished.settings, *drawn(again)] == whole


def test_a_draw_that_was_cut_off_is_failed_and_does_not_count(root, tiny):
    search = opened(root, tiny, random_sweep())
    search._study.ask()  # killed before the trial was recorded
    assert len(drawn(opened(root, tiny, random_sweep()))) == 6
    assert states(search) == ["FAIL"] + 6 * ["COMPLETE"]


def test_a_search_ends_when_there_is_nothing_new_to_draw(root, tiny):
    sweep = random_sweep(axes={"model.norm": ["pre", "post"]}, trials=5)
    assert sorted(each["model.norm"] for each in drawn(opened(root, tiny, sweep))) == ["post", "pre"]


def test_settings_that_are_no_valid_preset_are_not_given_out(root, tiny):
    sweep = random_sweep(axes={"model.d_model": {"low": 16, "high": 19}}, trials=2)
    assert {each["model.d_model"] for each in drawn(opened(root, tiny, sweep))} == {16, 18}


def test_tpe_comes_back_to_what_was_good(root, tiny):
    search = opened(root, tiny, random_sweep(trials=60, search="tpe"))
    tail = []
    for i in range(60):
        trial = search.next()
        rate = trial.settings["training.learning_rate"]
        search.finish(trial, rate)
        tail += [rate] if i >= 40 else []
    assert sum(rate < 3e-4 for rate in tail) > 10  # a quarter of the range; random would give 5 of 20


def test_several_processes_share_a_search(root, tiny):
    first, second = opened(root, tiny, random_sweep()), opened(root, tiny, random_sweep())
    trials = [search.next() for _ in range(3) for search in (first, second)]
    assert len({trial.name for trial in trials}) == 6
    assert first.next() is second.next() is None


def test_more_trials_extend_a_search(root, tiny):
    few = drawn(opened(root, tiny, random_sweep()))
    assert drawn(opened(root, tiny, random_sweep(trials=9)))[:6] == few


def test_a_journal_that_a_crash_cut_off_is_mended(root, tiny):
    drawn(opened(root, tiny, random_sweep(trials=2)))
    journal = SweepFolder(root, "s").journal
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "wor')
    assert len(drawn(opened(root, tiny, random_sweep(trials=3)))) == 3
    assert states(opened(root, tiny, random_sweep(trials=3))) == 3 * ["COMPLETE"]


def test_a_storage_that_does_not_belong_to_the_sweep_is_refused(root, tiny):
    drawn(opened(root, tiny, random_sweep(trials=2)))
    folder = SweepFolder(root, "s")
    folder.journal.rename(folder.path / "away")
    with pytest.raises(SweepError, match=r"its storage lacks s-.*; continue it with the command and the storage"):
        opened(root, tiny, random_sweep(trials=2))
    (folder.path / "away").rename(folder.journal)
    next((folder.path / "trials").iterdir()).unlink()
    with pytest.raises(SweepError, match=r"its storage has a trial . that s.sweep/ lacks"):
        opened(root, tiny, random_sweep(trials=2))
    folder.journal.write_text("nonsense\nnonsense\n")
    with pytest.raises(SweepError, match=r"journal.log cannot be used"):
        opened(root, tiny, random_sweep(trials=2))


def test_a_database_keeps_the_study_and_its_password_is_not_shown(root, tiny, tmp_path):
    folder = SweepFolder(root, "s")
    folder.prepare(SweepFile(sweep=random_sweep(), base=tiny), extend=False)
    file = SweepFile(sweep=random_sweep(), base=tiny)
    url = f"sqlite:///{tmp_path}/study.db"
    assert len(drawn(OptunaSearch(file, folder, storage=url))) == 6
    assert drawn(OptunaSearch(file, folder, storage=url))[:6]
    assert not folder.journal.exists()
    with pytest.raises(SweepError, match=r"--storage=nowhere:… cannot be used") as refused:
        OptunaSearch(file, folder, storage="nowhere://me:secret@host/x")
    assert "secret" not in str(refused.value)


def test_without_optuna_a_plain_message_says_what_to_install(root, tiny, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("core.storage.optional_imports.importlib.import_module", missing)
    with pytest.raises(LabError, match="search='random' needs the package optuna: pip install optuna"):
        opened(root, tiny, random_sweep())


# --- pruning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pruning", ["halving", "hyperband"])
def test_bad_trials_are_pruned_and_their_other_seeds_not_trained(drive, root, tiny, pruning):
    rates = {"training.learning_rate": [0.03, *(1e-6 * (i + 1) for i in range(4))]}
    sweep = make_sweep(axes=rates, set={"training.evaluate_every": 1, "training.steps": 4}, seeds=2, pruning=pruning)
    results = drive(sweep, jobs=1)  # the good trial first
    counts = statuses(results)
    assert len(results) == 10
    assert counts["pruned"] >= 4
    best = next(result for result in results if result.run.startswith("s-lr0-03"))
    assert best.status == "done"
    pruned = [result for result in results if result.status == "pruned" and result.message]
    assert all((root / result.run / "run.json").exists() for result in pruned)
    assert not any((root / result.run.replace("seed-0", "seed-1")).exists() for result in pruned)
    records = SweepFolder(root, "s").records()
    assert sum(record.pruned is not None for record in records.values()) == len(pruned)
    study = opened(root, tiny, sweep)
    assert sorted(states(study)) == sorted(
        "PRUNED" if record.pruned is not None else "COMPLETE" for record in records.values()
    )
    assert statuses(drive(sweep))["done"] == 0  # nothing is trained again


def test_pruning_goes_on_where_it_was_broken_off(root, tiny):
    sweep = random_sweep(pruning="halving", set={"training.evaluate_every": 1})
    search = opened(root, tiny, sweep)
    for _ in range(3):
        trial = search.next()
        assert not search.report(trial, 1, 0.5)
        search.finish(trial, 0.5)
    trial = search.next()
    again = opened(root, tiny, sweep)
    assert [again.next().name for _ in range(4)][-1] == trial.name
    assert again.report(trial, 1, 9.0)  # by the reports that the first one took
    assert SweepFolder(root, "s").record(trial.name).pruned == 1


def test_nothing_is_pruned_at_its_last_evaluation(root, tiny):
    sweep = random_sweep(pruning="halving", set={"training.evaluate_every": 8})
    search = opened(root, tiny, sweep)
    for value in (0.1, 0.1, 0.1, 9.0):
        assert not search.report(search.next(), 1, value)


@pytest.mark.parametrize(
    ("fields", "evaluations"),
    [
        ({}, 2),
        ({"goal": {"updates": 13}}, 4),
        ({"set": {"training.steps": 40}}, 10),
        ({"axes": {"training.evaluate_every": [1, 8]}}, 8),
        ({"axes": {"training.steps": {"low": 8, "high": 80}}, "search": "random", "trials": 2}, 20),
    ],
)
def test_hyperband_knows_how_often_the_longest_runs_are_evaluated(tiny, fields, evaluations):
    assert most_evaluations(make_sweep(**fields), tiny) == evaluations
