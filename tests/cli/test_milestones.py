"""``milestones``: the lab's own modules tick all, a user's file is checked, and one that cannot be used is refused."""

import re

import pytest
import torch

from core.teaching.milestones.table import MILESTONES, Term
from docs.documents import REPOSITORY, names_of_tests
from tests.support.command_output import last_json

RIGHT = """
import math

def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)
    return scores.softmax(dim=-1) @ v
"""
WHOLE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embed, self.places = nn.Embedding(vocab_size, 32), nn.Embedding(20, 32)
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, dropout=0.1, batch_first=True)
        self.out = nn.Linear(32, vocab_size)

    def forward(self, src, tgt):
        later = torch.ones(tgt.shape[1], tgt.shape[1]).triu(1).bool()
        src_x, tgt_x = (self.embed(x) + self.places(torch.arange(x.shape[1])) for x in (src, tgt))
        is_pad = src == 0
        return self.out(self.transformer(src_x, tgt_x, tgt_mask=CAUSAL,
            src_key_padding_mask=is_pad, memory_key_padding_mask=is_pad))

def build_transformer(vocab_size):
    return Model(vocab_size)

def loss(logits, target):
    return nn.functional.cross_entropy(logits, target)
"""


@pytest.mark.parametrize(
    "numbers", [(1, 2, 3, 4), pytest.param((5,), marks=pytest.mark.slow), pytest.param((), marks=pytest.mark.slow)]
)
def test_the_labs_own_modules_pass_every_check(lab, numbers):
    before = torch.get_rng_state()
    code, output, errors = lab("milestones", *map(str, numbers), "--json")
    assert (code, errors) == (0, "")
    assert torch.equal(torch.get_rng_state(), before)
    results = last_json(output)["milestones"]
    findings = [each for result in results for part in result["parts"] for each in part["findings"]]
    assert {each["light"] for each in findings} == {"green"}
    chosen = [each for each in MILESTONES if not numbers or each.number in numbers]
    assert [result["number"] for result in results] == [each.number for each in chosen]
    assert all(part["findings"] for result in results for part in result["parts"])
    for each in chosen:
        assert f"Milestone {each.number}: {each.title}" in output
        assert all(f"{term.path}:{term.line}" in output for term in each.terms)


def test_a_correct_file_passes_what_it_has_and_the_rest_is_gray(lab, tmp_path):
    (tmp_path / "mine.py").write_text(RIGHT)
    code, output, _ = lab("milestones", "1", "2", "--module", str(tmp_path / "mine.py"), "--json")
    first, second = last_json(output)["milestones"]
    lights = {
        part["part"]: {each["light"] for each in part["findings"]} for part in [*first["parts"], *second["parts"]]
    }
    assert lights == {"attention": {"green"}, "causal_mask": {"gray"}, "padding_mask": {"gray"}, "heads": {"gray"}}
    assert code == 0
    assert "looked for MultiHeadAttention (or MultiHeadedAttention," in output
    assert "✓ formula: The output is softmax(QKᵀ/√d_k)V." in output


def test_a_wrong_file_ends_with_1_and_the_cause(lab, tmp_path):
    (tmp_path / "mine.py").write_text(RIGHT.replace(" / math.sqrt(q.size(-1))", ""))
    code, output, _ = lab("milestones", "1", "--module", str(tmp_path / "mine.py"))
    assert code == 1
    assert "✗ formula:" in output
    assert "divide them by √d_k before the softmax" in " ".join(output.split())


def test_an_exception_in_a_check_names_its_line_of_the_file(lab, tmp_path):
    (tmp_path / "mine.py").write_text(RIGHT.replace(".transpose(-2, -1)", ""))
    code, output, _ = lab("milestones", "1", "--module", str(tmp_path / "mine.py"))
    assert code == 1
    assert "line 5 of the file" in " ".join(output.split())


def test_a_file_of_empty_bodies_has_not_passed(lab, tmp_path):
    (tmp_path / "mine.py").write_text("def attention(q, k, v, mask=None):\n    pass\n")
    code, output, _ = lab("milestones", "1", "--module", str(tmp_path / "mine.py"), "--json")
    assert (code, last_json(output)["ok"]) == (1, False)
    assert "its body may not be written yet" in " ".join(output.split())


def test_the_page_shows_what_is_said_of_its_wrong_file(lab, tmp_path):
    page = (REPOSITORY / "docs/milestones.md").read_text().partition("## A wrong file")[2]
    code, output = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)[1] for kind in ("python", "text"))
    (tmp_path / "my_attention.py").write_text(code)
    ended, printed, _ = lab("milestones", "1", "--module", str(tmp_path / "my_attention.py"))
    assert ended == 1
    assert output.count("✗") == 3
    assert output in printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\n1 / 0\n", "line 2: ZeroDivisionError: division by zero"),
        ("def attention(q, k, v:\n    pass\n", "line 1: SyntaxError"),
        ("import sys\nsys.exit(3)\n", "ends the program while it is imported"),
        ("import torch\nfrom torch.nn.functional import scaled_dot_product_attention\n", "has nothing to check"),
        ("from torch import nn\nloss = nn.CrossEntropyLoss()\nmha = nn.Linear(2, 2)\n", "has nothing to check"),
        ("def something():\n    pass\n", "looked for ScaledDotProductAttention (or scaled_dot_product_attention,"),
    ],
)
def test_a_file_that_cannot_be_used_ends_with_2(lab, tmp_path, text, message):
    (tmp_path / "mine.py").write_text(text)
    code, output, errors = lab("milestones", "--module", str(tmp_path / "mine.py"))
    assert (code, output) == (2, "")
    assert message in errors


@pytest.mark.parametrize(
    ("arguments", "message"), [(("6",), "milestone=6 must be from 1 to 5"), (("--module", "no.py"), "is not a file")]
)
def test_wrong_arguments_end_with_2(lab, arguments, message):
    code, output, errors = lab("milestones", *arguments)
    assert (code, output) == (2, "")
    assert message in errors


@pytest.mark.parametrize(("mask", "code"), [("later", 0), ("None", 1)])
def test_a_whole_model_is_examined_by_the_doctor_and_trained(lab, tmp_path, mask, code):
    (tmp_path / "mine.py").write_text(WHOLE.replace("CAUSAL", mask))
    ended, output, _ = lab("milestones", "5", "--module", str(tmp_path / "mine.py"), "--json")
    ((part,),) = [result["parts"] for result in last_json(output)["milestones"]]
    lights = {each["check"]: each["light"] for each in part["findings"]}
    assert ended == code, output
    assert lights["short training"] == "green"
    assert "the file has no compute_loss(model, src, tgt)" in output
    assert "pass loss=" not in output
    assert lights["causal leak"] == ("green" if code == 0 else "red")


def test_every_milestone_names_what_exists():
    for milestone in MILESTONES:
        assert all((REPOSITORY / term.path).is_file() and term.line for term in milestone.terms)
        assert {test.partition("::")[2] for test in milestone.tests} <= names_of_tests()
        assert all((REPOSITORY / test.partition("::")[0]).is_file() for test in milestone.tests)
        assert all((REPOSITORY / "presets/lessons" / name / "lesson.md").is_file() for name in milestone.lessons)
        assert (REPOSITORY / "presets/attention-lessons" / milestone.attention_file).is_file()
        assert all(is_defined_there(term) for term in milestone.terms)


def is_defined_there(term: Term) -> bool:
    """Whether the last name of a term is defined at its line of its file."""
    lines = (REPOSITORY / term.path).read_text().splitlines()[term.line - 1 : term.line + 2]
    return re.search(rf"(def|class) {term.name.split('.')[-1]}\b", "\n".join(lines)) is not None
