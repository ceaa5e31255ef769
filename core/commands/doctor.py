"""``doctor``: examine a run or a preset, and say in words what was found; or every bug, and every good preset."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass

from core.bug_names import BUG_FACTS, BugName
from core.commands.train import preset_of
from core.config import Preset, load_preset, preset_names
from core.doctor import Examination, examine_preset, examine_run
from core.errors import InputError
from core.run_folder import DEFAULT_ROOT

MARKS = {"green": "ok   ", "amber": "odd  ", "red": "WRONG"}
PATIENT = "tiny"  # what every bug is switched on in
GRU = {"model.family": "gru", "model.d_embedding": 32, "model.d_hidden": 64, "model.num_layers": 1}
FAMILIES = {
    "transformer": {},
    "decoder-only": {"model.family": "decoder-only"},
    "gru": GRU | {"model.dropout": 0.0, "model.max_seq_len": 32},
}
SEEDS = 3
LARGE = ("base", "large")  # too large to be examined in passing
QUICK = ("tiny", "digits-reversal", "digits-reversal-gru", "digits-reversal-decoder-only")
TOLD = {"numbers-reversal-as-told": "no-eos-in-targets", "words-reversal-gru-as-told": "encoder-over-pad"}
MAX_STEPS = 100_000


@dataclass(frozen=True)
class Verdict:
    """What was found where it is known what there is to find."""

    subject: str
    truth: BugName | None
    found: Examination

    @property
    def is_right(self) -> bool:
        """Whether the bug, and no other, was named; or, where there is none, whether all lights are green."""
        if self.truth:
            return self.found.bugs == [self.truth]
        return not self.found.bugs and not self.found.alarms


def run(options: argparse.Namespace) -> int:
    """Print what was found, a line a check, or a table of bugs and verdicts."""
    if not 0 <= options.steps <= MAX_STEPS:
        raise InputError(f"--steps={options.steps} must be from 0 to {MAX_STEPS}")
    if options.all_bugs:
        return _all_bugs(options)
    if (options.run is None) == (options.preset is None):
        raise InputError("doctor needs one of --run NAME, --preset NAME and --all-bugs")
    if options.run:
        found = examine_run(options.checkpoints or DEFAULT_ROOT, options.run)
    else:
        found = examine_preset(preset_of(options), steps=options.steps)
    print("\n".join(lines_of(found)))
    if options.json:
        print(json.dumps(found.as_data()))
    return 0


def lines_of(found: Examination) -> list[str]:
    """Write an examination for people."""
    named = ", ".join(BUG_FACTS[bug].title for bug in found.bugs)
    verdict = f"diagnosis: {named}" if named else f"no bug named, {len(found.alarms)} lights not green"
    return [
        *(f"{MARKS[each.light]} {each.check:35} {each.sentence}" for each in found.findings),
        f"{found.name}, after {found.step} updates: {verdict} ({found.seconds:.1f} s)",
    ]


def _all_bugs(options: argparse.Namespace) -> int:
    """Switch on every bug in every family that can have it, and examine the good presets; 1 if one verdict is wrong."""
    steps = options.steps
    bugs = [_shown(each) for each in _bug_verdicts(steps)]
    presets = [_shown(each) for each in _preset_verdicts(steps)]
    named = sum(each.is_right for each in bugs)
    good = [each for each in presets if each.truth is None]
    alarms = sum(not each.is_right for each in good)
    print(f"\n{named} of {len(bugs)} bugs named; {alarms} false alarms in {len(good)} examinations of good presets")
    if options.json:
        rows = [
            {"subject": each.subject, "truth": each.truth, "right": each.is_right} | each.found.as_data()
            for each in [*bugs, *presets]
        ]
        print(json.dumps({"steps": steps, "bugs": len(bugs), "named": named, "false_alarms": alarms, "rows": rows}))
    return 0 if all(each.is_right for each in [*bugs, *presets]) else 1


def _bug_verdicts(steps: int) -> Iterator[Verdict]:
    for bug, facts in BUG_FACTS.items():
        for family in facts.families:
            preset = load_preset(PATIENT).with_changes(FAMILIES[family]).with_bug(bug)
            yield Verdict(f"{PATIENT}, {family}", bug, examine_preset(preset, steps=steps))


def _preset_verdicts(steps: int) -> Iterator[Verdict]:
    """Untrained, all presets up to ``small``; trained, the quick ones, each to its own end."""
    for name in QUICK if steps else (each for each in preset_names() if each not in LARGE):
        for seed in range(SEEDS):
            preset: Preset = load_preset(name).with_changes({"training.seed": seed})
            after = preset.training.steps if steps else 0
            yield Verdict(f"{name}, seed {seed}", TOLD.get(name), examine_preset(preset, steps=after))


def _shown(verdict: Verdict) -> Verdict:
    """Print a verdict as soon as there is one."""
    alarms = "; ".join(f"{each.light}: {each.check}" for each in verdict.found.alarms)
    print(
        f"{'right' if verdict.is_right else 'MISSED':7} {verdict.truth or '–':24} {verdict.subject:36} "
        f"named {', '.join(verdict.found.bugs) or '–':24} {alarms or 'all green'}",
        flush=True,
    )
    return verdict
