"""Access control: visitors see only their own, shared and shipped runs, and change only their own."""

import inspect
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from core.config import ConfigError
from core.runs import RunError, RunFolder
from core.runs.export import WEIGHTS, export_weights, write_zip
from core.runs.importing import MAX_UPLOADED_HEADER_BYTES, import_run
from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from core.server.limits import PUBLIC
from core.storage.errors import InputError
from core.storage.tensor_file import CheckpointError, read_tensors, serialize
from core.tasks.ingest import PairFiles, prepare_preset
from tests.support.run_helpers import LONG_TRAINING, wait_for, wait_for_status

ANNA, BEN, STRANGER = Visitor("anna"), Visitor("ben"), Visitor("new", returning=False)
DOING = {"stop": (), "resume": (), "delete": (), "share": (True,), "rename": ("Another title",)}
ABOUT_THE_VISITOR = {"register_upload", "pairs_of", "is_mine", "start", "import_file", "has_visitors"}
ABOUT_THE_VISITOR |= {"own", "find", "classroom"}
OF_THE_SERVER = {
    "active",
    "queued",
    "counts",
    "warm_up",
    "close",
    "listings",
    "ownership",
    "names_in_use",
    "is_readable",
    "count_bytes",
    "last_used",
    "note_opened",
    "draft_of_file",
    "adopt",
    "create",
    "ensemble",
    "stop_in_class",
}  # not for visitors
OF_THE_MACHINE = {"device", "import_model", "sweeps"}  # the last two refuse visitors
ABOUT_PRESETS = {"training_time", "wait_for_training_time", "request_training_times"}
ABOUT_PRESETS |= {"new_run", "starting_points"}  # see test_starts


class Lab:
    """Runs, and the visitor who asks for them just now."""

    def __init__(self, runs: Runs) -> None:
        self.all, self.asks = runs, ANNA
        self.runs = VisitorRuns(runs, lambda: self.asks)

    def by(self, visitor: Visitor) -> VisitorRuns:
        self.asks = visitor
        return self.runs


@pytest.fixture
def lab(make_runs) -> Lab:
    return Lab(make_runs(**PUBLIC.model_dump() | {"max_training_per_visitor": None}))


@pytest.fixture
def annas(lab: Lab, tiny) -> str:
    """A finished run of Anna's."""
    name = lab.by(ANNA).start(tiny)
    wait_for_status(lab.all, name, "finished")
    wait_for(lambda: not lab.all.active())
    return name


def refusal(action, *arguments) -> str:
    with pytest.raises(RunError) as refused:
        action(*arguments)
    return str(refused.value)


def test_every_public_method_is_covered_or_internal():
    def public(of: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}

    looking = {"is_shared"}
    assert public(VisitorRuns) == {*looking, *DOING, *ABOUT_THE_VISITOR, *ABOUT_PRESETS, *OF_THE_MACHINE}
    assert public(Runs) - public(VisitorRuns) == OF_THE_SERVER


def test_a_private_run_looks_like_a_missing_one_to_others(lab: Lab, annas: str):
    for who in (BEN, STRANGER, Visitor(None, returning=False)):
        runs = lab.by(who)
        assert refusal(runs.__getitem__, annas) == refusal(runs.__getitem__, "nobodys-run").replace(
            "nobodys-run", annas
        )
        for name, arguments in {"is_shared": (), **DOING}.items():
            method = getattr(runs, name)
            missing = refusal(method, "nobodys-run", *arguments)
            assert refusal(method, annas, *arguments) == missing.replace("nobodys-run", annas), (who, name)
            assert "there is no such run" in missing, (who, name)
        assert list(runs) == [], who
        assert not runs.is_mine(annas), who
        assert list(lab.by(ANNA)) == [annas], who
        assert RunFolder(lab.all.root, annas).exists(), who


def test_a_shared_run_is_visible_to_all_and_changed_only_by_its_owner(lab: Lab, annas: str):
    lab.by(ANNA).share(annas, True)
    runs = lab.by(BEN)
    assert list(runs) == []  # he has no link to it yet
    _ = runs[annas].info
    assert list(runs) == [annas]
    assert runs.is_shared(annas)
    for attribute in (
        "info",
        "preset",
        "progress",
        "history",
        "replay",
        "weights_by_step",
        "has_weights",
        "folder",
        "title",
    ):
        getattr(runs[annas], attribute)
    assert runs[annas].trained().run == annas
    for name, arguments in DOING.items():
        assert "is not yours" in refusal(getattr(runs, name), annas, *arguments)
    lab.by(ANNA).share(annas, False)
    assert list(lab.by(BEN)) == []
    assert "no such run" in refusal(runs.__getitem__, annas)


def test_a_shipped_run_is_visible_to_all_and_changed_by_nobody(lab: Lab, tiny):
    folder = RunFolder.create(lab.all.root, tiny, name="gift", status="finished")
    folder.write_info(folder.read_info().model_copy(update={"shipped": True}))
    for who in (ANNA, STRANGER):
        assert list(lab.by(who)) == ["gift"]
        for name, arguments in DOING.items():
            assert "is not yours" in refusal(getattr(lab.runs, name), "gift", *arguments)


def test_a_run_without_owner_is_hidden_from_visitors(lab: Lab, tiny):
    RunFolder.create(lab.all.root, tiny, name="from-the-command-line", status="stopped")
    for who in (ANNA, STRANGER, Visitor(None, returning=False)):
        assert list(lab.by(who)) == []
        assert "no such run" in refusal(lab.runs.__getitem__, "from-the-command-line")


def test_visitors_without_cookie_cannot_start_runs(lab: Lab, tiny):
    for who in (STRANGER, Visitor(None, returning=False)):
        assert "sent no cookie" in refusal(lab.by(who).start, tiny)
    assert list(lab.all) == []


def test_an_imported_run_belongs_to_the_visitor_and_respects_limits(lab: Lab, annas: str, tmp_path):
    file = tmp_path / "run.safetensors"
    export_weights(lab.by(ANNA)[annas].folder, file)
    name = lab.by(BEN).import_file(file)
    assert list(lab.runs) == [name]
    assert lab.runs[name].trained().step == lab.all[annas].trained().step
    assert "no such run" in refusal(lab.by(ANNA).__getitem__, name)
    assert "sent no cookie" in refusal(lab.by(STRANGER).import_file, file)
    before = set(lab.all.root.iterdir())
    lab.all.limits = lab.all.limits.model_copy(update={"max_parameters": 1_000})
    with pytest.raises(ConfigError, match="at most 1,000"):
        lab.by(BEN).import_file(file)
    lab.runs.limits = lab.all.limits.model_copy(update={"max_upload_mb": 0})
    with pytest.raises(CheckpointError, match="the limit is 0"):
        lab.by(BEN).import_file(file)
    assert set(lab.all.root.iterdir()) == before


@pytest.fixture
def both_reading(monkeypatch) -> None:
    """Let no import end the reading of its file before another one reads."""
    barrier = threading.Barrier(2, timeout=30)

    def read(*arguments, **options):
        barrier.wait()
        return import_run(*arguments, **options)

    monkeypatch.setattr("core.server.registry.import_run", read)


def test_two_imports_at_a_time_get_two_names_and_keep_the_quota(lab: Lab, annas: str, tmp_path, both_reading):
    file = tmp_path / "run.safetensors"
    export_weights(lab.by(ANNA)[annas].folder, file)
    by_ben = lab.by(BEN)
    with ThreadPoolExecutor(2) as pool:
        names = set(pool.map(by_ben.import_file, [file] * 2))
        assert sorted(by_ben[name].title for name in names) == ["tiny 1", "tiny 2"]
        lab.runs.limits = lab.all.limits.model_copy(update={"max_runs_per_visitor": 3})
        third, fourth = (pool.submit(by_ben.import_file, file) for _ in range(2))
    refused = [each for each in (third.exception(), fourth.exception()) if each is not None]
    assert [str(each) for each in refused] == ["you have 3 runs, and the limit is 3; delete one"]
    assert not list(lab.all.root.glob(".*"))


def test_a_long_import_does_not_keep_others_from_starting_runs(lab: Lab, annas: str, tmp_path, tiny, monkeypatch):
    file, is_reading, may_end = tmp_path / "run.safetensors", threading.Event(), threading.Event()
    export_weights(lab.by(ANNA)[annas].folder, file)

    def read(*arguments, **options):
        is_reading.set()
        assert may_end.wait(60)
        return import_run(*arguments, **options)

    monkeypatch.setattr("core.server.registry.import_run", read)
    with ThreadPoolExecutor(1) as pool:
        imported = pool.submit(lab.runs.import_file, file)
        assert is_reading.wait(30)
        assert lab.runs.start(tiny) in list(lab.runs)
        assert lab.runs.rename(annas, "Mine") == "Mine"
        assert not imported.done()
        may_end.set()
        assert imported.result(timeout=60) in list(lab.runs)


@pytest.mark.parametrize("name", ["run.safetensors", "run.zip"])
def test_a_stranger_may_upload_a_smaller_header_than_the_machines_owner(lab: Lab, annas: str, tmp_path, name: str):
    tensors, facts = read_tensors(lab.by(ANNA)[annas].folder.best)
    large = bytes(serialize(tensors, facts | {"note": "a" * MAX_UPLOADED_HEADER_BYTES}))
    file = tmp_path / name
    if file.suffix == ".zip":
        write_zip({WEIGHTS: large}, file)
    else:
        file.write_bytes(large)
    with pytest.raises(CheckpointError, match="at most 4,000,000 header bytes"):
        lab.by(BEN).import_file(file)
    single = VisitorRuns(lab.all)
    assert single[single.import_file(file)].trained().step == lab.all[annas].trained().step


def test_run_names_of_visitors_cannot_be_guessed(lab: Lab, tiny):
    names = [lab.by(ANNA).start(tiny), lab.by(BEN).start(tiny)]
    secrets = [name.rpartition("-")[2] for name in names]
    assert secrets[0] != secrets[1]
    assert all(36 ** len(secret) > 2**120 for secret in secrets)


# --- names and titles -------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(monkeypatch) -> None:
    """Runs wait in the queue and never train."""
    monkeypatch.setattr("core.server.workers.WorkerPool._start_workers", lambda pool: None)


def readable(names: list[str]) -> list[str]:
    return [name.rpartition("-")[0] for name in names]


def test_runs_are_numbered_for_each_visitor(lab: Lab, tiny, waiting):
    annas = [lab.by(ANNA).start(tiny) for _ in range(2)]
    bens = [lab.by(BEN).start(tiny)]
    annas.append(lab.by(ANNA).start(tiny))
    assert readable(annas) == ["tiny-1", "tiny-2", "tiny-3"]
    assert readable(bens) == ["tiny-1"]
    assert [lab.by(ANNA)[name].title for name in annas] == ["tiny 1", "tiny 2", "tiny 3"]
    assert lab.by(BEN)[bens[0]].title == "tiny 1"


def test_the_number_of_a_deleted_run_is_not_given_again(lab: Lab, tiny, waiting):
    name = lab.by(ANNA).start(tiny)
    lab.runs.stop(name)
    lab.runs.delete(name)
    assert readable([lab.by(ANNA).start(tiny)]) == ["tiny-2"]
    assert readable([lab.by(BEN).start(tiny)]) == ["tiny-1"]


def test_the_runs_of_a_single_user_are_numbered_in_their_folder(make_runs, tiny, waiting):
    mine = VisitorRuns(make_runs())
    RunFolder.create(mine._runs.root, tiny, name="tiny-6", status="stopped")
    assert [mine.start(tiny), mine.start(tiny)] == ["tiny-7", "tiny-8"]
    assert mine.start(tiny, like="pair") == "pair"
    assert mine.start(tiny, like="pair") == "pair-2"
    mine.stop("tiny-8")
    mine.delete("tiny-8")
    assert mine.start(tiny) == "tiny-9"


def test_a_number_that_the_command_line_takes_meanwhile_is_skipped(make_runs, tiny, waiting):
    mine = VisitorRuns(make_runs())
    list(mine)
    mine._runs.listings = lambda: ()  # as they were a moment ago
    for _ in range(2):
        RunFolder.create(mine._runs.root, tiny)
    assert mine.start(tiny) == "tiny-3"


def test_starts_at_the_same_time_get_different_numbers(make_runs, tiny, waiting):
    mine = VisitorRuns(make_runs(), lambda: ANNA)
    with ThreadPoolExecutor(6) as pool:
        names = list(pool.map(lambda _: mine.start(tiny), range(6)))
    assert sorted(readable(names)) == [f"tiny-{number}" for number in range(1, 7)]


def test_a_long_name_is_shortened_but_its_title_is_not(lab: Lab, tiny, waiting):
    preset = tiny.model_copy(update={"name": "words-reversal-gru-as-told"})
    names = [lab.by(ANNA).start(preset) for _ in range(2)]
    assert [lab.runs[name].title for name in names] == [f"{preset.name} 1", f"{preset.name} 2"]
    assert all(len(name) <= 48 for name in names)
    lab.runs.rename(names[0], f"{preset.name} 3")
    assert lab.runs[lab.runs.start(preset)].title.startswith("words-revers")  # the whole title is taken


def test_only_the_owner_renames_a_run_and_its_name_stays(lab: Lab, annas: str):
    assert lab.by(ANNA).rename(annas, " Mine ") == "Mine"
    assert lab.runs[annas].title == "Mine"
    assert list(lab.runs) == [annas]
    lab.runs.share(annas, True)
    assert lab.by(BEN)[annas].title == "Mine"
    assert "is not yours" in refusal(lab.runs.rename, annas, "Ours")
    assert lab.by(ANNA).rename(annas, "") == "tiny 1"


def test_a_title_must_differ_from_those_that_the_visitor_sees_and_from_no_others(lab: Lab, tiny, waiting):
    first, second = (lab.by(ANNA).start(tiny) for _ in range(2))
    bens = lab.by(BEN).start(tiny)
    lab.by(ANNA).rename(first, "Mine")
    lab.runs.rename(first, "Mine")
    with pytest.raises(InputError, match="another run has the title 'MINE'"):
        lab.runs.rename(second, "MINE")
    assert lab.by(BEN).rename(bens, "Mine") == "Mine"  # says nothing about Anna's runs
    lab.by(ANNA).rename(second, "tiny 1")
    with pytest.raises(InputError, match="another run has the title 'tiny 1'"):
        lab.runs.rename(first, "")
    assert readable([lab.runs.start(tiny)]) == ["tiny-3"]


def test_a_new_run_does_not_get_a_title_that_a_run_was_given(lab: Lab, tiny, waiting):
    first = lab.by(ANNA).start(tiny)
    lab.runs.rename(first, "tiny 2")
    assert lab.runs[lab.runs.start(tiny)].title == "tiny 3"


def test_a_single_user_cannot_rename_a_shipped_run(make_runs, tiny):
    mine = VisitorRuns(make_runs())
    folder = RunFolder.create(mine._runs.root, tiny, name="gift", status="finished")
    folder.write_info(folder.read_info().model_copy(update={"shipped": True}))
    assert "is shipped with the program and cannot be renamed" in refusal(mine.rename, "gift", "Mine")


def test_a_run_is_renamed_while_it_trains(make_runs, tiny):
    mine = VisitorRuns(make_runs())
    name = mine.start(tiny.with_changes(LONG_TRAINING))
    wait_for(lambda: mine[name].info.step > 5)
    mine.rename(name, "Still training")
    step = mine[name].info.step
    wait_for(lambda: mine[name].info.step > step)
    mine.stop(name)
    wait_for_status(mine, name, "stopped")
    assert mine[name].title == "Still training"


def test_a_run_whose_folder_was_deleted_cannot_be_renamed(make_runs, tiny, waiting):
    mine = VisitorRuns(make_runs())
    name = mine.start(tiny)
    shutil.rmtree(mine._runs.root / name)
    assert f"run='{name}': there is no such run" in refusal(mine.rename, name, "Mine")


def test_an_imported_run_keeps_its_title_unless_the_visitor_sees_another_of_it(lab: Lab, annas: str, tmp_path):
    lab.by(ANNA).rename(annas, "Best of all")
    export_weights(lab.runs[annas].folder, tmp_path / "run.safetensors")
    assert lab.by(BEN)[lab.by(BEN).import_file(tmp_path / "run.safetensors")].title == "Best of all"
    again = lab.by(ANNA).import_file(tmp_path / "run.safetensors")
    assert (lab.runs[again].title, readable([again])) == ("tiny 2", ["tiny-2"])


def test_a_single_user_has_all_rights(make_runs, tiny):
    runs = make_runs()
    mine = VisitorRuns(runs)
    name = mine.start(tiny)
    assert len(name) < 20
    RunFolder.create(runs.root, tiny, name="another", status="stopped")
    assert set(list(mine)) == {name, "another"}
    mine.delete("another")
    assert not mine.has_visitors


# --- limits -----------------------------------------------------------------------------------------------------


def limited(make_runs, **limits: int | None) -> Lab:
    return Lab(make_runs(**PUBLIC.model_dump() | {"max_runs": 1} | limits))


def test_active_runs_are_limited_per_visitor(make_runs, tiny):
    lab, preset = limited(make_runs, max_active_per_visitor=2), tiny.with_changes(LONG_TRAINING)
    for _ in range(2):
        lab.by(ANNA).start(preset)
    assert "2 of your runs are training or queued, and the limit is 2" in refusal(lab.runs.start, preset)
    lab.by(BEN).start(preset)


def test_the_queue_is_limited(make_runs, tiny):
    lab, preset = limited(make_runs, max_queued=2), tiny.with_changes(LONG_TRAINING)
    for number in range(3):
        lab.by(Visitor(f"v{number}")).start(preset)
    assert "2 runs are queued, which is the limit" in refusal(lab.by(BEN).start, preset)


def test_the_queue_is_fair_between_visitors(make_runs, tiny):
    lab, preset = limited(make_runs), tiny.with_changes(LONG_TRAINING)
    _, second, third = (lab.by(ANNA).start(preset) for _ in range(3))
    bens = lab.by(BEN).start(preset)
    assert lab.by(BEN)[bens].progress.queue_position == 1
    assert [lab.by(ANNA)[name].progress.queue_position for name in (second, third)] == [2, 3]


def test_stored_runs_are_limited_per_visitor(make_runs, tiny, root):
    lab = limited(make_runs, max_runs_per_visitor=2)
    for _ in range(2):
        name = lab.by(ANNA).start(tiny)
        wait_for_status(lab.all, name, "finished")
    assert "you have 2 runs, and the limit is 2" in refusal(lab.runs.start, tiny)
    wait_for(lambda: not lab.all.active())
    lab.runs.delete(name)
    lab.runs.start(tiny)


@pytest.mark.parametrize(("limit", "said"), [("max_disk_mb_per_visitor", "your runs"), ("max_disk_mb", "all runs")])
def test_disk_space_is_limited(make_runs, tiny, limit, said):
    lab = limited(make_runs, **{limit: 1})
    name = lab.by(ANNA).start(tiny)
    wait_for_status(lab.all, name, "finished")
    (RunFolder(lab.all.root, name).path / "large").write_bytes(bytes(1_000_000))
    assert said in refusal(lab.runs.start, tiny)


def test_limits_also_apply_when_resuming(make_runs, tiny):
    lab = limited(make_runs, max_steps=10)
    folder = RunFolder.create(lab.all.root, tiny.with_changes({"training.steps": 11}), name="a", status="stopped")
    (folder.path / "access.json").write_text('{"owner": "anna", "shared": false}')
    with pytest.raises(ValueError, match=r"training.steps=11 .* at most 10"):
        lab.by(ANNA).resume("a")


def test_own_pairs_are_only_for_their_owner_even_if_the_run_is_shared(lab: Lab, tiny, tmp_path):
    (tmp_path / "p.tsv").write_text("".join(f"{number}\t{number}\n" for number in range(100, 160)))
    found, preset = prepare_preset(
        PairFiles(tmp_path / "p.tsv"), tmp_path / "kept", kinds=("character", "symbol"), name="own"
    )
    small = {"model.d_model": 8, "model.d_ff": 8, "model.num_heads": 2, "training.steps": 2, "training.warmup_steps": 0}
    preset = preset.with_changes(small)
    with pytest.raises(ConfigError, match="is not among your pairs"):
        lab.by(ANNA).start(preset)
    lab.by(ANNA).register_upload(found.sha256, tmp_path / "kept")
    name = lab.by(ANNA).start(preset)
    wait_for_status(lab.all, name, "finished")
    lab.by(ANNA).share(name, True)
    assert lab.by(BEN)[name].trained().task.table
    with pytest.raises(ConfigError, match="is not among your pairs"):
        lab.by(BEN).start(preset)
    lab.runs._uploads.clear()
    assert lab.by(ANNA).start(preset) != name  # a run of hers has it
