"""The doctor on a recorded course: each fault is found with its number and step, and a healthy course passes."""

import pytest

from core.interpret.health import HeadHealth, Health
from core.interpret.health_course import health_steps
from core.runs import RunFolder
from core.runs.run import Runs
from core.runs.training_state import training_state_of
from core.teaching.doctor import examine_state
from core.teaching.doctor.health_checks import check_health
from tests.support.trainings import train_run


def heads(**changes) -> HeadHealth:
    """A layer of two heads without a mark."""
    one = {"cross": ((0.5, 0.6),)}
    figures = dict.fromkeys(
        ("entropy", "entropy_share", "distance", "reach", "fixed_key_mass", "output_share", "change"), one
    )
    rest = {"diversity": {"cross": (0.5,)}, "layer_rms": {"decoder.1": 1.0}, "logit_rms": 2.0}
    return HeadHealth(**(figures | rest | changes))


def health(perplexity: float, *, gradient: float = 0.5, update: float = 1e-3, **changes) -> Health:
    parts = {"embeddings": 0.4, "encoder.1": gradient}
    return Health(
        perplexity=perplexity,
        gradient_norm=parts,
        update_size={"embeddings": update, "encoder.1": update / 2},
        heads=heads(**changes),
    )


def course(*perplexities: float, **changes) -> list[tuple[int, Health]]:
    return [(10 * at, health(value, **changes)) for at, value in enumerate(perplexities)]


FALLING = (20.0, 9.0, 4.0, 2.0, 1.5, 1.2)


def alarms(steps: list[tuple[int, Health]]) -> dict[str, str]:
    return {each.check: each.sentence for each in check_health(steps) if each.light in ("amber", "red")}


def test_a_healthy_course_passes_every_check():
    findings = check_health(course(*FALLING))
    assert len(findings) == 6
    assert [each.light for each in findings] == ["green"] * 6


def test_a_run_without_a_course_is_not_checked():
    assert check_health([]) == []


def test_vanishing_gradients_are_found_with_part_and_step():
    steps = course(*FALLING)
    steps[3] = (30, health(2.0, gradient=3e-8))
    (sentence,) = alarms(steps).values()
    assert "At step 30 the gradients of encoder.1 had a norm of only 3.0e-08" in sentence
    assert "pre-norm" in sentence


def test_small_gradients_of_a_solved_task_are_no_fault():
    steps = course(*FALLING, 1.0001)
    steps[-1] = (60, health(1.0001, gradient=1e-9))
    assert alarms(steps) == {}


def test_exploding_gradients_are_found_with_part_and_step():
    steps = course(*FALLING)
    steps[1] = (10, health(9.0, gradient=25.0))
    (sentence,) = alarms(steps).values()
    assert (
        "At step 10 the gradients of encoder.1 had a norm of 25; it was above 10 at 1 of 6 recorded steps" in sentence
    )
    assert "learning rate" in sentence


def test_a_rare_spike_of_the_gradients_is_no_explosion():
    steps = course(*FALLING, *[1.01] * 6)
    steps[8] = (80, health(1.01, gradient=11.9))
    assert alarms(steps) == {}
    assert "and 11.9, above 10 at 1 of 12 recorded steps." in check_health(steps)[0].sentence
    steps[9] = (90, health(1.01, gradient=11.9))
    assert "it was above 10 at 2 of 12 recorded steps" in alarms(steps)["gradients while training"]


@pytest.mark.parametrize(("update", "advice"), [(0.2, "Lower the learning rate"), (1e-7, "Raise the learning rate")])
def test_updates_far_from_a_thousandth_are_found(update, advice):
    (sentence,) = alarms(course(*FALLING, update=update)).values()
    assert f"{update:.1e}" in sentence
    assert "step 50" in sentence
    assert advice in sentence


def test_a_perplexity_that_does_not_fall_is_found():
    (sentence,) = alarms(course(20.0, 19.0, 18.0, 18.5, 18.4, 18.3)).values()
    assert "has not fallen since step 20: it is 18.3" in sentence


def test_a_perplexity_that_rises_again_is_found():
    (sentence,) = alarms(course(20.0, 9.0, 4.0, 5.0, 6.0, 9.0)).values()
    assert "was 4 at step 20 and rose to 9 at step 50" in sentence


def test_a_perplexity_of_few_steps_is_not_judged():
    assert alarms(course(20.0, 30.0, 40.0)) == {}
    lights = {each.check: each.light for each in check_health(course(20.0, 30.0, 40.0))}
    assert lights["perplexity while training"] == lights["updates while training"] == "gray"
    alone = {each.check: each.light for each in check_health(course(1.2, update=1e-7))}
    assert alone["updates while training"] == alone["layer outputs while training"] == "gray"


def test_entropy_collapse_is_found_with_the_step_since_when():
    steps = course(*FALLING)
    for at in (3, 4, 5):
        steps[at] = (10 * at, health(FALLING[at], fixed_key_mass={"cross": ((0.3, 0.999),)}))
    (sentence,) = alarms(steps).values()
    assert "At step 50 cross.1.2 attended to one key whatever the query (entropy collapse), since step 30" in sentence


def test_dead_heads_are_found():
    (sentence,) = alarms(course(*FALLING, output_share={"cross": ((1e-4, 1e-3),)})).values()
    assert "cross.1.1 and 1 more added almost nothing to the layer's output, since step 0" in sentence


def test_growing_layer_outputs_are_found():
    steps = course(*FALLING)
    steps[-1] = (50, health(1.2, layer_rms={"decoder.1": 500.0}))
    (sentence,) = alarms(steps).values()
    assert "The output of decoder.1 grew 500 times, to 500 at step 50" in sentence


def test_growing_logits_are_found_and_large_ones_from_the_start_are_not_growth():
    steps = course(*FALLING)
    steps[-1] = (50, health(1.2, logit_rms=40.0))
    (sentence,) = alarms(steps).values()
    assert "root mean square of 2 at first and 40 at step 50: above 32" in sentence
    assert alarms(course(*FALLING, logit_rms=40.0)) == {}


def test_logits_that_were_not_recorded_are_left_out_and_a_single_size_is_gray():
    checks = {each.check for each in check_health(course(*FALLING, logit_rms=None))}
    assert len(checks) == 5
    assert "logits while training" not in checks
    assert check_health(course(20.0))[-1].light == "gray"


def test_the_doctor_reads_the_course_of_a_run(root, tiny):
    folder = RunFolder.create(root, tiny, name="a")
    train_run(folder)
    runs = Runs(root)
    state = training_state_of(runs["a"].trained())
    recorded = health_steps(runs["a"].replay.snapshots())
    without, examined = (examine_state("a", state, runs["a"].history, each) for each in ((), recorded))
    assert len(examined.findings) == len(without.findings) + 6
    assert examined.findings[-6].check == "gradients while training"
