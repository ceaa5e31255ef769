"""Models of other programs, imported from a path on the page: who may do it, what is proposed, and what is refused."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from core.storage.errors import LabError
from tests.serving import SHIPPED
from tests.support.foreign_models import MARIAN, StateDictModel, write_folder, write_marian_text_model
from ui.forms.import_model import import_steps, model_path
from ui.page import build_page
from ui.serving import launch
from ui.serving.host_check import host_rules, is_own_computer
from ui.serving.visitors import Presence


@pytest.fixture
def own_runs(tmp_path: Path) -> Iterator[Runs]:
    """An empty lab."""
    runs = Runs(tmp_path / "checkpoints")
    yield runs
    runs.close()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """The state dict of a small model built on nn.Transformer."""
    torch.manual_seed(0)
    torch.save(StateDictModel().state_dict(), tmp_path / "my_model.pt")
    return tmp_path / "my_model.pt"


def last(runs: Runs, path: object, pairs: str = "", mapping: str = "") -> dict[str, Any]:
    """The last values of an import by name; a value that stays as it is is left out."""
    *busy, end = import_steps(VisitorRuns(runs), threading.Event(), str(path), pairs, mapping)
    assert all(not each["start"]["interactive"] and each["stop"]["visible"] for each in busy)  # Stop, not Import
    assert end["start"]["interactive"]
    assert not end["stop"]["visible"]
    return end


def problem_of(end: dict[str, Any]) -> str:
    assert end["message"]["problem"]
    assert "run" not in end
    return end["message"]["text"]


# ---- who may name paths


@pytest.mark.parametrize(
    ("server_name", "variable", "local"),
    [
        (None, None, True),
        ("127.0.0.1", None, True),
        ("192.168.1.7", None, False),
        ("lab.example", None, False),
        (None, "192.168.1.7", False),
    ],
)
def test_a_server_that_others_can_reach_is_not_local(server_name, variable, local, monkeypatch):
    monkeypatch.delenv("GRADIO_SERVER_NAME", raising=False)
    if variable:
        monkeypatch.setenv("GRADIO_SERVER_NAME", variable)
    assert is_own_computer(server_name) == local


@pytest.mark.parametrize(
    ("presence", "options", "expected"),
    [
        (None, {}, True),
        (None, {"hosts": host_rules(bound="127.0.0.1", public=False, environment={})}, True),
        (None, {"server_name": "192.168.1.7"}, False),
        # Behind a proxy on this computer, which passes on requests of others:
        (None, {"hosts": host_rules(["lab.example"], public=False, environment={})}, False),
        (None, {"hosts": host_rules(public=False, environment={"SPACE_HOST": "lab.hf.space"})}, False),
        (Presence(), {}, False),
    ],
    ids=["local", "loopback", "network", "proxy", "space", "public"],
)
def test_the_form_exists_on_a_local_server_only(presence, options, expected, own_runs, monkeypatch):
    class BuiltError(Exception):
        pass

    def build(runs: VisitorRuns, *, reads_paths: bool) -> None:
        raise BuiltError(reads_paths)

    monkeypatch.setattr(launch, "build_page", build)
    with pytest.raises(BuiltError) as built:
        launch.serve(own_runs, presence, **options)
    assert built.value.args == (expected,)


def test_without_it_the_page_has_neither_the_form_nor_its_events(own_runs: Runs):
    with_form, without = (build_page(VisitorRuns(own_runs), reads_paths=reads_paths) for reads_paths in (True, False))
    ids = [{block.elem_id for block in page.blocks.values()} for page in (with_form, without)]
    own = {
        "model-open",
        "model-close",
        "model-path",
        "model-pairs",
        "model-languages",
        "model-mapping",
        "model-start",
        "model-stop",
    }
    assert ids[0] - ids[1] == own | {"model-import", "model-message"}
    assert {fn.fn.__module__ for fn in without.fns.values() if fn.fn} & {"ui.forms.import_model"} == set()
    assert len(with_form.fns) > len(without.fns)


def test_visitors_of_a_public_server_cannot_import_even_if_asked_directly(own_runs: Runs, tmp_path: Path):
    folder = write_folder(tmp_path / "m", MARIAN)
    visitors = VisitorRuns(own_runs, lambda: Visitor("someone"))
    with pytest.raises(LabError, match="by its own user only"):
        visitors.import_model(folder, pairs=None, mapping=None, languages=(None, None), on_phase=print)
    assert list(own_runs) == []


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "http://127.0.0.1:1"])
def test_a_request_of_another_site_reads_nothing(address: str, runs: Runs, tmp_path: Path, origin: str):
    folder, before = write_folder(tmp_path / "stolen", MARIAN), list(runs)
    client = httpx.Client(base_url=address, timeout=60)
    config = client.get("config").json()
    path = next(each["id"] for each in config["components"] if each["props"].get("elem_id") == "model-path")
    event = next(each for each in config["dependencies"] if len(each["outputs"]) == 7 and path in each["inputs"])
    body = {"data": [str(folder), "", "", None], "fn_index": event["id"], "session_hash": f"stranger{len(origin)}"}
    answer = client.post("gradio_api/queue/join", json=body, headers={"origin": origin})
    assert answer.status_code == 403
    assert "only the lab's own pages" in answer.text
    assert list(runs) == before


# ---- import


def test_a_folder_becomes_a_run_that_says_what_it_is(own_runs: Runs, tmp_path: Path):
    folder = write_marian_text_model(tmp_path / "opus")
    end = last(own_runs, f'  "{folder}" ')
    info = own_runs[end["run"]].info
    size = len(own_runs[end["run"]].trained().task.src_vocab)
    assert end["run"] == "opus-1"
    assert end["message"] == {"text": ""}
    assert "Marian: 1 encoder and 2 decoder layers, 2 heads, d_model 8, " in info.message
    assert f"{info.parameters:,} parameters, vocabulary {size:,}" in info.message


def test_pairs_are_imported_to_measure_the_model_on(own_runs: Runs, tmp_path: Path):
    folder = write_marian_text_model(tmp_path / "opus")
    (tmp_path / "test.tsv").write_text("Press Enter.\tEnter.\nIt's open.\tOffen.\n")
    end = last(own_runs, folder, pairs=str(tmp_path / "test.tsv"))
    assert len(own_runs[end["run"]].trained().task.table) == 2


def test_a_state_dict_is_imported_with_the_mapping_that_the_user_corrected(own_runs: Runs, weights: Path):
    proposed = last(own_runs, weights)
    mapping = proposed["mapping"]["value"]
    assert proposed["mapping"]["visible"]
    assert "the weights do not say num_heads=8, norm=post, activation=relu" in proposed["message"]["text"]
    assert "problem" not in proposed["message"]
    assert "#   out.weight (20, 32)" in mapping
    assert list(own_runs) == []
    end = last(own_runs, weights, mapping=mapping.replace("num_heads: 8", "num_heads: 4"))
    assert own_runs[end["run"]].preset.model.num_heads == 4
    assert end["mapping"]["value"] == ""


def test_a_mapping_that_cannot_be_proposed_is_written_by_hand(own_runs: Runs, tmp_path: Path):
    model = StateDictModel()
    model.bridge = torch.nn.Linear(32, 20)  # might be the output layer, too
    torch.save(model.state_dict(), tmp_path / "two.pt")
    proposed = last(own_runs, tmp_path / "two.pt")
    assert "2 output layers with a bias" in proposed["message"]["text"]
    mapping = proposed["mapping"]["value"]
    assert "#   bridge.weight (20, 32)" in mapping
    assert "source_embedding=''" in problem_of(last(own_runs, tmp_path / "two.pt", mapping=mapping))
    for field, name in (("source_embedding", "src"), ("target_embedding", "tgt"), ("output", "out")):
        mapping = mapping.replace(f'{field}: ""', f"{field}: {name}.weight")
    end = last(own_runs, tmp_path / "two.pt", mapping=mapping)
    assert "does not use bridge.bias" in own_runs[end["run"]].info.message


def test_an_import_that_is_stopped_leaves_nothing(own_runs: Runs, tmp_path: Path):
    stopping = threading.Event()
    folder = write_folder(tmp_path / "m", MARIAN)
    stopping.set()
    *_, end = import_steps(VisitorRuns(own_runs), stopping, str(folder), "", "")
    assert end["message"] == {"text": "stopped; nothing was imported", "problem": True}
    assert list(own_runs.root.glob("*")) == []


# ---- what is refused


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "path is empty"),
        ("{here}/nothing", "there is no such file or folder"),
        ("{here}/notes.txt", "must be a folder, or a file that ends with .pt, "),
        ("{here}", "the folder has no config.json"),
        ("/dev/null", "must be a folder"),
        ("{here}/damaged.pt", "damaged.pt has no tensors"),
        ("{here}/damaged.safetensors", "damaged.safetensors cannot be read"),
        ("x" * 5_000, "path has 5,000 characters"),
        ("a\0b", "path has the character U+0000"),
        ("~nobody-of-this-name/m", "there is no such file or folder"),
    ],
)
def test_paths_that_are_no_model_are_explained_without_their_content(own_runs, tmp_path, path, message):
    for name in ("notes.txt", "damaged.pt", "damaged.safetensors"):
        (tmp_path / name).write_text("secret: 1234567\n" * 9)
    text = problem_of(last(own_runs, path.format(here=tmp_path)))
    assert message in text
    assert "1234567" not in text
    assert list(own_runs) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bert"}, "config.json: model_type = 'bert' is not supported; supported are marian, bart"),
        ({"d_model": 16}, "by config.json it is"),
        ({"encoder_layers": 2}, "is missing"),
    ],
    ids=str,
)
def test_a_folder_that_does_not_fit_names_file_and_field(own_runs, tmp_path, changes, message):
    folder = write_folder(tmp_path / "m", MARIAN)
    (folder / "config.json").write_text(json.dumps(MARIAN | changes))
    assert message in problem_of(last(own_runs, folder))
    assert list(own_runs) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("num_heads: 5", "must be divisible by"),
        ("num_heads: [", "the mapping: "),
        ("num_heads: many", "the mapping: num_heads='many'"),
        ("source_tokens: ../words.txt", "source_tokens='../words.txt' must be the name of a file beside the weights"),
        ("target_tokens: /etc/hostname", "target_tokens='/etc/hostname' must be the name"),
        ("target_tokens: words.txt", "words.txt"),
    ],
)
def test_a_mapping_that_does_not_fit_names_its_field(own_runs, weights, changed, message):
    proposed = last(own_runs, weights)["mapping"]["value"]
    field = changed.partition(":")[0]
    lines = [changed if line.startswith(f"{field}:") else line for line in proposed.splitlines()]
    end = last(own_runs, weights, mapping="\n".join(lines))
    assert message in problem_of(end)
    assert "mapping" not in end  # what was typed stays
    assert list(own_runs) == []


@pytest.mark.parametrize(("pairs", "message"), [("none.tsv", "pairs="), ("my_model.pt", "is a zip archive, not text")])
def test_pairs_that_cannot_be_used_are_explained(own_runs, weights, pairs, message):
    assert message in problem_of(last(own_runs, weights, pairs=str(weights.with_name(pairs))))


def test_a_run_of_the_lab_is_sent_to_the_other_button(runs: Runs):
    with pytest.raises(LabError, match="Import a run"):
        model_path(str(runs.root / SHIPPED))
