"""Runs of visitors that begin with the weights of other runs: only of those that they may read, and within limits."""

from pathlib import Path

import pytest

from core.config import ConfigError
from core.config.tasks import VOCABULARY
from core.runs import RunError
from core.server.access import Visitor, VisitorRuns
from core.server.limits import PUBLIC
from core.tasks.ingest import PairFiles, prepare_preset
from tests.support.run_helpers import wait_for, wait_for_status

ANNA, BEN = Visitor("anna"), Visitor("ben")
MORE = {"training.steps": 4, "training.warmup_steps": 0}


class Lab:
    """Runs of a public server, and the visitor who asks for them just now."""

    def __init__(self, make_runs, **limits: int) -> None:
        self.all, self.asks = make_runs(**PUBLIC.model_dump() | {"max_training_per_visitor": None} | limits), ANNA
        self.runs = VisitorRuns(self.all, lambda: self.asks)

    def by(self, visitor: Visitor) -> VisitorRuns:
        self.asks = visitor
        return self.runs

    def finish(self, name: str) -> str:
        wait_for_status(self.all, name, "finished", "failed")
        wait_for(lambda: not self.all.active())
        assert self.all[name].info.status == "finished", self.all[name].info.message
        return name


@pytest.fixture
def lab(make_runs) -> Lab:
    return Lab(make_runs)


def test_a_visitor_starts_only_from_runs_that_they_may_read(lab: Lab, tiny):
    annas = lab.finish(lab.by(ANNA).start(tiny))
    bens = lab.by(BEN)
    refused = {}
    for name in (annas, "nobodys-run"):
        with pytest.raises(RunError) as error:
            bens.start(tiny, start_from=name)
        refused[name] = str(error.value).replace(name, "…")
        for refuses in (
            bens.new_run,
            lambda preset, name: bens.wait_for_training_time(preset, start_from=name, seconds=0),
        ):
            with pytest.raises(RunError, match="there is no such run"):
                refuses(tiny, name)
    assert refused[annas] == refused["nobodys-run"]
    assert bens.starting_points(tiny).starts == []
    lab.by(ANNA).share(annas, True)
    new = lab.finish(lab.by(BEN).start(tiny.with_changes(MORE), start_from=annas))
    start = lab.all[new].info.start
    assert start is not None
    assert start.run == "tiny-1"  # without its secret
    assert annas not in lab.all[new].folder.path.joinpath("run.json").read_text()
    assert [each.name for each in lab.by(BEN).starting_points(tiny).starts] == [new, annas]  # which he has opened
    lab.by(ANNA).share(annas, False)
    with pytest.raises(RunError, match="there is no such run"):
        lab.by(BEN).start(tiny, start_from=annas)


def test_the_list_says_why_a_run_does_not_fit(lab: Lab, tiny):
    mine = lab.by(ANNA)
    first = lab.finish(mine.start(tiny))
    (fits,) = mine.starting_points(tiny).starts
    assert (fits.name, fits.title, fits.reason) == (first, "tiny 1", "")
    (other,) = mine.starting_points(tiny.with_changes({"model.d_model": 8, "model.num_heads": 4})).starts
    assert other.reason == "model.d_model=8, and it has 16; model.num_heads=4, and it has 2"
    changes = {"model.d_model": 8, "model.num_heads": 4, "model.d_ff": 8, "model.num_encoder_layers": 3}
    (other,) = mine.starting_points(tiny.with_changes(changes)).starts
    assert (other.reason.count(", and it has "), other.reason.endswith("; 1 more")) == (3, True)
    with pytest.raises(ConfigError, match=r"model\.d_model=8, and tiny-1 has 16"):
        mine.start(tiny.with_changes({"model.d_model": 8}), start_from=first)


def upload(mine: VisitorRuns, folder: Path, letters: str):
    """Register pairs of words of these letters, and return a small preset for them."""
    words = [a + b + c for a in letters for b in letters for c in letters]
    (folder / f"{letters}.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    kinds = ("character", "character")
    kept = folder / f"{letters}.kept"
    found, preset = prepare_preset(PairFiles(folder / f"{letters}.tsv"), kept, kinds=kinds)
    mine.register_upload(found.sha256, kept)
    small = {"model.d_model": 8, "model.d_ff": 8, "model.num_heads": 2, "training.evaluate_every": 2}
    return preset.with_changes(small | MORE)


def test_own_pairs_have_the_vocabulary_of_the_run_and_its_size_counts(make_runs, tmp_path):
    lab = Lab(make_runs)
    mine = lab.by(ANNA)
    first = lab.finish(mine.start(upload(mine, tmp_path, "abcdefgh")))
    few = upload(mine, tmp_path, "abch")
    new = mine.new_run(few, first)
    assert new.pairs is not None
    assert new.pairs.with_name(VOCABULARY).is_file()
    assert mine.new_run(few.with_changes({"training.steps": 9}), first).pairs == new.pairs  # laid out once
    second = lab.finish(mine.start(few, start_from=first))
    assert lab.all[second].task().src_vocab.tokens == lab.all[first].task().src_vocab.tokens
    parameters = lab.all[second].info.parameters
    mine.delete(first)
    assert lab.all[second].trained().decode("abc").output is not None
    strict = Lab(make_runs, max_parameters=parameters - 1)
    with pytest.raises(ConfigError, match="more than this server allows"):
        strict.by(ANNA).limits.check(new.preset, pairs=new.pairs)
    unknown = upload(mine, tmp_path, "abxyz")
    with pytest.raises(ConfigError, match=r"the pairs have 3 characters that .* does not know: x y z"):
        mine.start(unknown, start_from=second)


def test_a_vocabulary_of_another_run_is_not_found_by_its_hash_alone(lab: Lab, tmp_path):
    mine = lab.by(ANNA)
    first = lab.finish(mine.start(upload(mine, tmp_path, "abcdefgh")))
    second = lab.finish(mine.start(upload(mine, tmp_path, "abch"), start_from=first))
    with pytest.raises(ConfigError, match="these vocabularies are missing"):
        mine.start(lab.all[second].preset)
