"""``doctor``: diagnose a run or a preset; or run the doctor benchmark over every bug and every preset."""

import argparse
import json
from typing import Any

from core.cli import doctor_benchmark
from core.cli.arguments import pairs_from, preset_from
from core.cli.doctor_benchmark import Verdict
from core.interpret.health_course import health_steps
from core.runs import DEFAULT_ROOT
from core.runs.run import Run, Runs
from core.runs.training_state import training_state_of
from core.storage.errors import InputError
from core.teaching.doctor import Examination, examine_preset, examine_state

MAX_STEPS = 100_000


def run(options: argparse.Namespace) -> int:
    """Print one line per check, or a table of bugs and verdicts; return 1 if a check failed or a diagnosis is wrong."""
    if not 0 <= options.steps <= MAX_STEPS:
        raise InputError(f"--steps={options.steps} must be from 0 to {MAX_STEPS}")
    if options.all_bugs:
        return _all_bugs(options)
    if (options.run is None) == (options.preset is None):
        raise InputError("doctor needs one of --run NAME, --preset NAME and --all-bugs")
    if options.run:
        chosen = Runs(options.checkpoints or DEFAULT_ROOT)[options.run]
        examination = chosen.examination if chosen.preset.is_watched else _examined(chosen)
    else:
        examination = examine_preset(preset_from(options), steps=options.steps, pairs=pairs_from(options))
    print(examination)
    if options.json:
        print(json.dumps(examination.as_data()))
    return 0 if examination.ok else 1


def _examined(chosen: Run) -> Examination:
    """Examine the weights of a run of the lab."""
    loaded, course = chosen.trained(), health_steps(chosen.replay.snapshots())
    return examine_state(chosen.name, training_state_of(loaded), chosen.history, course)


def _all_bugs(options: argparse.Namespace) -> int:
    """Examine every bug in every family it applies to, and every preset; return 1 if a diagnosis is wrong."""
    steps = options.steps
    parts = {
        "bugs, untrained": doctor_benchmark.of_bugs(0),
        "presets, untrained": doctor_benchmark.of_untrained_presets(),
    }
    if steps:
        parts[f"bugs, after {steps} updates"] = doctor_benchmark.of_bugs(steps)
        parts["presets, trained"] = doctor_benchmark.of_trained_presets(options.checkpoints or DEFAULT_ROOT, steps)
    verdicts = {part: [_print_verdict(each) for each in of_part] for part, of_part in parts.items()}
    print("\n" + "\n".join(_summary(part, of_part) for part, of_part in verdicts.items()))
    if options.json:
        data = {part: [_as_data(each) for each in of_part] for part, of_part in verdicts.items()}
        print(json.dumps({"steps": steps, "parts": data}))
    return 0 if all(each.is_correct for of_part in verdicts.values() for each in of_part) else 1


def _print_verdict(verdict: Verdict) -> Verdict:
    """Print a verdict as soon as there is one."""
    examination = verdict.examination
    lights = "; ".join(f"{each.light}: {each.check}" for each in examination.alarms) or "none failed"
    print(
        f"{'correct' if verdict.is_correct else 'WRONG':7} {verdict.expected or '–':24} {verdict.subject:36} "
        f"{examination.step:6} updates  {examination.seconds:4.1f} s  "
        f"found {', '.join(examination.bugs) or '–':24} {lights}",
        flush=True,
    )
    return verdict


def _summary(part: str, verdicts: list[Verdict]) -> str:
    broken, good = ([each for each in verdicts if (each.expected is None) is is_good] for is_good in (False, True))
    found, alarms = sum(each.is_correct for each in broken), sum(not each.is_correct for each in good)
    slowest = max(verdicts, key=lambda each: each.examination.seconds)
    return (
        f"{part + ':':26} {found} of {len(broken)} bugs found, {alarms} false alarms on {len(good)} models without a "
        f"bug; the slowest examination took {slowest.examination.seconds:.1f} s ({slowest.subject})"
    )


def _as_data(verdict: Verdict) -> dict[str, Any]:
    data = {"subject": verdict.subject, "expected": verdict.expected, "correct": verdict.is_correct}
    return data | verdict.examination.as_data()
