"""``lesson``: train the correct and the broken run of a lesson, and save their results."""

import argparse
import json
import os
import sys

import torch
from tqdm import tqdm

from core.config.counting import percent
from core.storage.atomic import write_atomically
from core.storage.errors import InputError
from core.teaching.lessons import LESSON_FOLDER, RESULTS_FILE, Lesson, lesson_names, load_lesson, measure_pair

FIGURES = (
    ("training loss", "train_loss", "{:.4f}".format),
    ("validation loss", "validation_loss", "{:.4f}".format),
    ("teacher-forced tokens", "token_accuracy", percent),
    ("exact match", "exact_match", percent),
    ("exact match, unbatched", "exact_match_unpadded", percent),
    ("90 % exact at step", "step_of_90_percent", str),
    ("output", "answer", str),
)


def run(options: argparse.Namespace) -> int:
    """Train one lesson or all of them and write their results, or list the lessons."""
    if options.name is None:
        titles = {name: load_lesson(name).title for name in lesson_names()}
        print("\n".join(f"{name:24} {title}" for name, title in titles.items()))
        if options.json:
            print(json.dumps({"lessons": titles}))
        return 0
    names = lesson_names() if options.name == "all" else [options.name]
    lessons = [load_lesson(name) for name in names]
    out = options.out or LESSON_FOLDER
    if out.exists() and not out.is_dir():
        raise InputError(f"--out={out} is a file; it must be a folder")
    folders = [out / lesson.name for lesson in lessons]
    for folder in folders:  # before minutes of training
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise InputError(f"--out={out}: {folder.name} in it cannot be written to")
    torch.set_num_threads(1)
    known: dict = {}
    measured: dict[str, dict] = {}
    for lesson, folder in zip(lessons, folders, strict=True):
        results = measured[lesson.name] = _measured(lesson, known)
        print("\n".join(_lines(lesson, results)), flush=True)
        write_atomically(folder / RESULTS_FILE, (json.dumps(results, separators=(",", ":")) + "\n").encode())
    if options.json:
        print(json.dumps({"lessons": measured} if options.name == "all" else measured[options.name]))
    return 0


def _measured(lesson: Lesson, known: dict) -> dict:
    bar: dict[str, tqdm] = {}

    def on_step(side: str, step: int, steps: int) -> None:
        if side not in bar:
            bar[side] = tqdm(total=steps, desc=f"{lesson.name}, {side}", unit="step", file=sys.stderr, disable=None)
        bar[side].update(1)

    try:
        return measure_pair(lesson, on_step=on_step, known=known)
    finally:
        for each in bar.values():
            each.close()


def _lines(lesson: Lesson, results: dict) -> list[str]:
    """Format the figures of both runs in two columns, and the doctor's diagnosis of each."""
    lines = [f"{lesson.title} ({lesson.name}), {results['seconds']} s", f"  {'':22} {'correct':>28} {'broken':>28}"]
    for label, figure, text_of in FIGURES:
        values = [results[side]["figures"][figure] for side in ("right", "broken")]
        texts = ["–" if value is None else text_of(value)[:28] for value in values]
        lines.append(f"  {label:22} {texts[0]:>28} {texts[1]:>28}")
    named = [", ".join(results[side]["doctor"]["bugs"]) or "nothing" for side in ("right", "broken")]
    return [*lines, f"  {'diagnosis':22} {named[0]:>28} {named[1]:>28}"]
