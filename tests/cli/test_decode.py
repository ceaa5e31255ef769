"""``decode`` and ``evaluate`` with decoding strategies, prefixes and interventions."""

import pytest
import torch

from core.__main__ import main
from core.cli.arguments import STRATEGY_OPTIONS, option_of
from core.evaluation.outputs import decode_padded, exact_match_unpadded
from core.generation import Beam, Sample, generate, strategy_class
from core.interpret.interventions import Interventions
from core.runs import DEFAULT_ROOT
from core.runs.load import load_run
from core.tasks import fixed_pairs
from tests.support.command_output import last_json


@pytest.fixture
def lab(trained, capsys):
    """Run a command on the trained run: (exit code, standard output, standard error)."""

    def run(command: str, *arguments: str) -> tuple[int, str, str]:
        code = main(["--checkpoints", str(trained), command, "--run", "done", *arguments])
        return code, *capsys.readouterr()

    return run


def test_beam_search_prints_ranked_hypotheses_with_scores(lab, trained):
    options = ("--strategy", "beam", "--beam-size", "4", "--length-penalty", "0.5", "--n-best", "3")
    code, output, _ = lab("decode", "4829", *options, "--json")
    assert code == 0
    result = last_json(output)
    assert result["strategy"] == {
        "kind": "beam",
        "beam_size": 4,
        "length_penalty": 0.5,
        "n_best": 3,
        "repetition_penalty": 1.0,
    }
    assert len(result["n_best"]) == 3
    assert result["n_best"][0]["output"] == result["output"]
    scores = [answer["score"] for answer in result["n_best"]]
    assert scores == sorted(scores, reverse=True)
    for rank, answer in enumerate(result["n_best"], start=1):
        line = f"best    {rank}  {answer['output']}  score {answer['score']:.4f}, log P {answer['log_prob']:.4f}"
        assert line in output
    loaded = load_run(trained / "done")
    src = torch.tensor([[1, 7, 11, 5, 12, 2]])
    strategy = Beam(length_penalty=0.5, n_best=3)
    search = generate(loaded.model, src, max_steps=loaded.model.max_seq_len, strategy=strategy).search
    assert scores == pytest.approx([each.score for each in search.hypotheses(0)], abs=1e-5)


def test_sampling_is_reproducible_by_its_seed(lab):
    settings = ("--temperature", "2.5", "--top-k", "9", "--top-p", "0.95", "--repetition-penalty", "1.2")
    outputs = []
    for seed in ("1", "1", "2", "3"):
        code, output, _ = lab("decode", "4829", "--strategy", "sample", *settings, "--seed", seed, "--json")
        assert code == 0
        result = last_json(output)
        outputs.append(result["steps"])
        assert result["n_best"] == []
        assert result["strategy"]["temperature"] == 2.5
        assert all(0 < step["probability"] <= 1 for step in result["steps"])
    assert outputs[0] == outputs[1]
    assert outputs[0] not in outputs[2:]
    assert "strategy  sample, repetition penalty 1.2, temperature 2.5, top k 9, top p 0.95, seed 3" in output


def test_a_prefix_starts_the_output_and_is_marked_forced(lab):
    code, output, _ = lab("decode", "4829", "--prefix", "7 7", "--json")
    assert code == 0
    result = last_json(output)
    assert result["output"].startswith("7 7")
    assert [step["forced"] for step in result["steps"][:3]] == [True, True, False]
    assert output.count("% forced  of  ") == 2


def test_evaluate_uses_the_decoding_strategy(lab, capsys):
    shipped = "digits-reversal-shipped"  # greedily, every output is right
    loaded = load_run(DEFAULT_ROOT / shipped)
    pairs = fixed_pairs(loaded.task, 40, split="test")
    options = ["--sequences", "40", "--strategy", "sample", "--temperature", "2.5"]
    assert main(["--checkpoints", str(DEFAULT_ROOT), "evaluate", "--run", shipped, *options, "--json"]) == 0
    output = capsys.readouterr().out
    result = last_json(output)
    strategy = Sample(temperature=2.5)
    assert 0 < result["exact_match"] < 1
    assert result["strategy"] == strategy.model_dump()
    assert result["exact_match"] == exact_match_unpadded(loaded.model, pairs, strategy=strategy)
    padded = decode_padded(loaded.model, pairs, strategy=strategy, max_steps=loaded.model.max_seq_len)
    assert result["padding"]["padded"] == padded.exact_match()
    assert "strategy        sample" in output
    assert " of the steps of 40 greedy outputs\n" in output
    assert "strategy  " not in lab("evaluate", "--sequences", "40")[1]
    main(["--checkpoints", str(DEFAULT_ROOT), "evaluate", "--run", "induction-shipped", "--sequences", "5"])
    decoder_only = capsys.readouterr().out
    assert "its largest weight on the source is there in " in decoder_only
    assert decoder_only.count("of the steps\n") == 1  # those of the evaluated outputs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--strategy best", "--strategy='best' is not one of greedy, beam, sample"),
        ("--strategy beam --beam-size 0", "--beam-size=0 should be greater than or equal to 1"),
        ("--strategy beam --beam-size 33", "--beam-size=33 should be less than or equal to 32"),
        ("--strategy beam --beam-size 2.5", "--beam-size=2.5 should be a valid integer"),
        ("--strategy beam --beam-size four", "--beam-size='four' should be a valid integer"),
        ("--strategy beam --n-best 9", "--n-best=9 must not be above --beam-size=4"),
        ("--strategy beam --n-best 0", "--n-best=0 should be greater than or equal to 1"),
        ("--strategy beam --length-penalty -1", "--length-penalty=-1 should be greater than or equal to 0"),
        ("--strategy beam --length-penalty .nan", "--length-penalty=nan should be a finite number"),
        ("--strategy sample --temperature 0", "--temperature=0 should be greater than or equal to 0.001"),
        ("--strategy sample --temperature hot", "--temperature='hot' should be a valid number"),
        ("--strategy sample --top-k -1", "--top-k=-1 should be greater than or equal to 0"),
        ("--strategy sample --top-p 0", "--top-p=0 should be greater than 0"),
        ("--strategy sample --top-p 1.5", "--top-p=1.5 should be less than or equal to 1"),
        ("--strategy sample --seed -1", "--seed=-1 should be greater than or equal to 0"),
        ("--repetition-penalty 0.5", "--repetition-penalty=0.5 should be greater than or equal to 1"),
        ("--beam-size 4", "--beam-size=4 is not a setting of greedy, which has --repetition-penalty"),
        (
            "--strategy beam --seed 1",
            "--seed=1 is not a setting of beam, which has --beam-size, --len",
        ),
        ("--strategy sample --n-best 2", "--n-best=2 is not a setting of sample, which has"),
        (f"--seed {'9' * 5000}", "--seed='999"),
    ],
    ids=lambda value: value[:40],
)
def test_invalid_strategy_options_are_refused_in_one_line(lab, options, message):
    for command in (["decode", "4829"], ["evaluate", "--sequences", "10"]):
        code, output, errors = lab(*command, *options.split())
        assert (code, output) == (2, "")
        assert errors.startswith(f"error: {message}")
        assert len(errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("9 x", "prefix: 'x' at position 2 is not one of 0 1 2 3 4 5 6 7 8 9"),
        ("<EOS>", "prefix: '<' at position 1 is not one of"),
        ("1" * 16, "prefix has 16 tokens, 17 with EOS; this model writes 16"),
    ],
)
def test_an_invalid_prefix_is_refused(lab, prefix, message):
    code, output, errors = lab("decode", "4829", "--prefix", prefix)
    assert (code, output) == (2, "")
    assert errors.startswith(f"error: {message}")
    assert len(errors.splitlines()) == 1


# --- heads ------------------------------------------------------------------------------------------------------


def test_ablations_and_patterns_change_the_decode(lab, trained):
    options = ("--ablate", "encoder.1", "--ablate", "cross.1.1", "--pattern", "cross.1.2=position 3")
    code, output, _ = lab("decode", "4829", *options, "--json")
    assert code == 0
    result = last_json(output)
    assert result["ablate"] == ["encoder.1.1", "encoder.1.2", "cross.1.1"]
    assert (result["ablate_with"], result["pattern"]) == ("zero", {"cross.1.2": "position 3"})
    words = "encoder.1.1, encoder.1.2, cross.1.1 ablated (zero); cross.1.2 follows position 3"
    assert f"heads     {words}\n" in output
    model = load_run(trained / "done").model
    interventions = Interventions.parse(model.heads, ablate=options[1:4:2], patterns=options[5:])
    src = torch.tensor([[1, 7, 11, 5, 12, 2]])
    with interventions.applied_to(model):
        decoded = generate(model, src, max_steps=model.max_seq_len)
    assert [step["probability"] for step in result["steps"]] == pytest.approx(decoded.log_probs[0].exp().tolist())


def test_a_position_beyond_the_input_is_noted(lab):
    patterns = ("--pattern", "cross.1.1=position 5", "--pattern", "cross.1.2=position 6")
    output = lab("decode", "4829", *patterns)[1]
    note = "cross.1.2 follows position 6, but the last position of this input is 5, which it attends to"
    assert f"note      {note}\n" in output
    assert "cross.1.1 follows position 5, but" not in output


def test_a_head_can_be_replaced_by_its_mean(lab):
    steps = []
    for ablation in ("zero", "mean"):
        code, output, _ = lab("decode", "4829", "--ablate", "cross.1.1", "--ablate-with", ablation, "--json")
        assert code == 0
        assert f"heads     cross.1.1 ablated ({ablation})\n" in output
        steps.append([step["probability"] for step in last_json(output)["steps"]])
    assert steps[0] != steps[1]


def test_a_plain_decode_prints_no_interventions(lab):
    _, output, _ = lab("decode", "4829", "--json")
    assert "heads     " not in output
    assert [last_json(output)[name] for name in ("ablate", "ablate_with", "pattern")] == [[], None, {}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--ablate cross.2.1",
            "ablate=cross.2.1 is not in this model, which has encoder.1.1 to encoder.1.2, dec",
        ),
        ("--ablate head", "ablate='head' is not a head (cross.2.1), a layer (cross.2) or a block"),
        ("--pattern cross.1.1=up", "pattern='up' is not one of diagonal, anti-diagonal, position K"),
        (
            "--pattern encoder.1.1=diagonal",
            "head=encoder.1.1 cannot follow a pattern; only heads of cross-attention can",
        ),
        (
            "--ablate cross --pattern cross.1.1=diagonal",
            "head=cross.1.1 cannot both be ablated and have the pattern diagonal",
        ),
        ("--ablate-with mean", "--ablate-with=mean needs --ablate"),
    ],
)
def test_invalid_interventions_are_refused_in_one_line(lab, options, message):
    code, output, errors = lab("decode", "4829", *options.split())
    assert (code, output) == (2, "")
    assert errors.startswith(f"error: {message}")
    assert len(errors.splitlines()) == 1


def test_every_strategy_setting_has_an_option(lab, capsys):
    known = {name for kind in ("greedy", "beam", "sample") for name in strategy_class(kind).model_fields} - {"kind"}
    assert known == set(STRATEGY_OPTIONS)
    with pytest.raises(SystemExit):
        main(["decode", "--help"])
    usage = capsys.readouterr().out
    assert all(option_of(name) in usage for name in known)
