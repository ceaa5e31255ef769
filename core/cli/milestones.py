"""``milestones``: check the design document's milestones on the lab's own modules, or on a file of the user."""

import argparse
import json
import textwrap

import torch

from core.storage.errors import InputError
from core.teaching.doctor.finding import Finding, Light
from core.teaching.milestones.checker import MilestoneChecker, MilestoneResult, PartResult
from core.teaching.milestones.lab_modules import LAB
from core.teaching.milestones.names import NAMES, looked_for
from core.teaching.milestones.own_file import load_own_file
from core.teaching.milestones.table import MILESTONES, Milestone

MARKS: dict[Light, str] = {"green": "✓", "amber": "!", "red": "✗", "gray": "–"}
WIDTH = 116  # of a sentence, with its indent


def run(options: argparse.Namespace) -> int:
    """Print the milestones with their checks; return 1 if one failed, or none passed."""
    chosen = _chosen(options.numbers)
    file = LAB if options.module is None else load_own_file(options.module)
    parts = [part for milestone in chosen for part in milestone.parts]
    if not any(part in file.parts for part in parts):
        raise InputError(f"--module={str(options.module)!r} has nothing to check; looked for {looked_for(*parts)}")
    torch.set_num_threads(1)  # the models are so small that threads only wait for each other
    checker, results = MilestoneChecker(file), []
    for milestone in chosen:
        results.append(checker.check(milestone))
        print("\n".join(_lines(results[-1])), end="\n\n", flush=True)
    lights = {each.light for result in results for part in result.parts for each in part.findings}
    ok = "red" not in lights and "green" in lights  # a file of empty bodies has not passed
    print(_summary(results))
    if options.json:
        data = {"module": file.path or None, "ok": ok, "milestones": [each.as_data() for each in results]}
        print(json.dumps(data))
    return 0 if ok else 1


def _chosen(numbers: list[int]) -> list[Milestone]:
    known = {each.number: each for each in MILESTONES}
    for number in numbers:
        if number not in known:
            raise InputError(f"milestone={number} must be from 1 to {len(known)}")
    return [known[number] for number in dict.fromkeys(numbers)] or list(MILESTONES)


def _lines(result: MilestoneResult) -> list[str]:
    """Format a milestone: its terms and where it is tested, taught and shown; then its checks."""
    milestone = result.milestone
    lines = [f"Milestone {milestone.number}: {milestone.title}"]
    rows = [(term.document, term.name, f"{term.path}:{term.line}") for term in milestone.terms]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines += [f"  {document:{widths[0]}}  →  {name:{widths[1]}}  {place}" for document, name, place in rows]
    lines += [f"  {'test':8} {each}" for each in milestone.tests]
    lines += [f"  {'lessons':8} presets/lessons: {', '.join(milestone.lessons)}"]
    lines += [f"  {'lesson':8} presets/attention-lessons/{milestone.attention_file}"]
    lines += [f"  {'command':8} {milestone.command}"]
    for part in result.parts:
        lines += _part_lines(part)
    return lines


def _part_lines(part: PartResult) -> list[str]:
    title = part.found_as or NAMES[part.part][0]
    lines = [f"  {title}", *(f"    {each}" for each in part.conventions)]
    skipped: dict[str, list[str]] = {}  # checks that were not made for one reason are one line
    for each in part.findings:
        if each.light == "gray":
            skipped.setdefault(each.sentence, []).append(each.check)
        else:
            lines += _wrapped(each, each.check)
    for sentence, names in skipped.items():
        lines += _wrapped(Finding("", "gray", sentence), ", ".join(names))
    return lines


def _wrapped(finding: Finding, name: str) -> list[str]:
    text = f"{MARKS[finding.light]} {name}: {finding.sentence}"
    return textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="      ", break_long_words=False)


def _summary(results: list[MilestoneResult]) -> str:
    findings = [each for result in results for part in result.parts for each in part.findings]
    counts = {light: sum(each.light == light for each in findings) for light in MARKS}
    words: dict[Light, str] = {"green": "passed", "amber": "warnings", "red": "failed", "gray": "not made"}
    return ", ".join(f"{counts[light]} {word}" for light, word in words.items() if counts[light] or light == "green")
