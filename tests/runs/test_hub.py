"""Push and pull of runs, against a local server with the API of the Hugging Face Hub."""

import json

import pytest
from torch.testing import assert_close

from core.__main__ import main
from core.runs import RunFolder
from core.runs.export import CARD, WEIGHTS, package_files
from core.runs.hub import HubError, one_line_errors, pull, push
from core.server import Runs
from core.storage.tensor_file import CheckpointError


def test_a_pushed_run_is_pulled_unchanged(hub, trained, root, capsys):
    assert main(["--checkpoints", str(trained), "push", "--run", "done", "me/reverse", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said == {"run": "done", "repo": "me/reverse", "address": f"{hub.address}/me/reverse"}
    sent, packed = hub.files["me/reverse"], package_files(RunFolder(trained, "done"))
    assert {name for name in sent if sent[name] != packed[name]} <= {WEIGHTS}  # metadata may stand in another order
    assert sent.keys() == packed.keys()
    (trained_once,) = RunFolder(trained, "done").read_info().provenance
    assert f"commit `{trained_once.commit}`" in sent[CARD].decode()
    assert hub.private["me/reverse"] is True
    assert "Bearer hf_told" in hub.tokens
    assert main(["--checkpoints", str(root), "pull", "me/reverse", "--run", "back"]) == 0
    old, new = Runs(trained)["done"].trained(), Runs(root)["back"].trained()
    assert_close(dict(new.model.state_dict()), dict(old.model.state_dict()), atol=0, rtol=0)
    assert new.preset == old.preset
    assert new.facts["provenance"] == old.facts["provenance"]


def test_own_pairs_are_uploaded_only_on_request(hub, own, root, capsys):
    command = ["--checkpoints", str(own.path.parent), "push", "--run", "own", "me/own"]
    assert main(command) == 2
    assert "was trained on your own pairs" in capsys.readouterr().err
    assert hub.files == {}
    assert main([*command, "--with-data", "--public"]) == 0
    assert hub.private["me/own"] is False
    assert pull(root, "me/own").read_preset().task.own_data == own.read_preset().task.own_data


def test_a_pulled_package_is_checked_like_any_untrusted_file(hub, trained, root):
    push(RunFolder(trained, "done"), "me/x")
    damaged = bytearray(hub.files["me/x"][WEIGHTS])
    damaged[-5] ^= 1
    hub.files["me/x"][WEIGHTS] = bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        pull(root, "me/x")
    hub.files["me/x"] = {"pytorch_model.bin": b"x"}
    with pytest.raises(CheckpointError, match=f"the package has no {WEIGHTS}"):
        pull(root, "me/x")
    assert ("GET", "/me/x/resolve/main/pytorch_model.bin") not in hub.requests


@pytest.mark.parametrize("repo", ["", "alone", "../x/y", "a/b/c", "a b/c", "https://x/y"])
def test_a_repository_name_must_be_user_slash_name(trained, root, repo, capsys):
    assert main(["--checkpoints", str(root), "pull", "--", repo]) == 2
    assert "must look like user/name" in capsys.readouterr().err


def test_a_missing_repository_is_reported_in_one_line(hub, root, capsys):
    assert main(["--checkpoints", str(root), "pull", "me/nothing"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "repo='me/nothing'" in error


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://hub.invalid"], ids=["refuses", "has no address"])
@pytest.mark.parametrize("command", [["push", "--run", "done", "me/x"], ["pull", "me/x"], ["deploy", "me/x"]], ids=str)
def test_an_unreachable_hub_is_named_in_words(hub, trained, monkeypatch, capsys, command, address):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the times that it tries again
    assert main(["--checkpoints", str(trained), *command]) == 2
    said = (
        f"error: repo='me/x': the Hub at {address} cannot be reached; check the network, and HF_ENDPOINT if it is set"
    )
    assert capsys.readouterr().err.splitlines()[-1] == said  # before it huggingface_hub may log that it tries again


def test_a_hub_that_does_not_answer_in_time_is_unreachable():
    with pytest.raises(HubError, match="cannot be reached"), one_line_errors("me/x"):
        raise RuntimeError("the read operation timed out") from TimeoutError()
    with pytest.raises(HubError, match="no space is left"), one_line_errors("me/x"):
        raise OSError("no space is left")
