"""The subjects of ``bench`` with their arguments."""

import argparse
from pathlib import Path

from core.cli.arguments import add_json, add_pairs, add_preset, add_run


def add_subjects(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each subject."""
    subjects = parser.add_subparsers(
        dest="subject",
        required=True,
        metavar="SUBJECT",
        title="subjects",
        help="what to measure",
        parser_class=argparse.ArgumentParser,
    )
    adder = subjects.add_parser("adder", help="AdderBoard's protocol: sums of ten digits, and the parameters they take")
    add_run(adder)
    adder.add_argument(
        "--submission",
        type=Path,
        metavar="FILE.py",
        help="also write what AdderBoard's verify.py reads; weights and plugins beside it",
    )
    agreement = subjects.add_parser(
        "agreement", help="patching, ablation and attribution: whether they agree on what a reversed digit depends on"
    )
    agreement.add_argument("--seeds", type=int, default=3, metavar="N", help="number of seeds (default: 3)")
    agreement.add_argument(
        "--pairs",
        type=int,
        default=500,
        metavar="N",
        help="pairs of an input and a changed one, per seed (default: 500)",
    )
    add_preset(agreement, required=False, default="digits-reversal")
    classroom = subjects.add_parser("class", help="a teacher and a class of students who train and look inside")
    classroom.add_argument("--students", type=int, default=40, metavar="N", help="number of students (default: 40)")
    classroom.add_argument("--minutes", type=float, default=3.0, metavar="N", help="least duration (default: 3)")
    classroom.add_argument("--attack", action="store_true", help="with a student who tries to stop the class")
    subjects.add_parser("decode", help="decoding speed, single and in bulk, compared with Hugging Face's generate")
    estimate = subjects.add_parser("estimate", help="estimated training times, compared with real trainings")
    estimate.add_argument(
        "--presets",
        metavar="A,B",
        help="names of presets (default: all that are estimated to take less than five minutes)",
    )
    memory = subjects.add_parser(
        "memory", help="memory growth of training, and the memory of an update beside its estimate"
    )
    memory.add_argument(
        "--presets", metavar="A,B", help="names of presets to train and measure (default: those of many lengths)"
    )
    memory.add_argument(
        "--updates", type=int, default=1_000, metavar="N", help="updates of each of them (default: 1,000)"
    )
    mutants = subjects.add_parser("mutants", help="correct models broken blindly, and what the doctor says of them")
    mutants.add_argument("--show", action="store_true", help="print what was missed or not named in the open half")
    recipes = subjects.add_parser("recipes", help="what data proposes for small sets of own pairs, trained and tested")
    recipes.add_argument("--sets", metavar="A,B", help="names of generated sets (default: all)")
    recipes.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="PAIRS[,TEST[,VALIDATION]]",
        help="files of pairs instead; repeatable",
    )
    subjects.add_parser("replay", help="cost of recording a training replay")
    growth = subjects.add_parser(
        "growth", help="time and memory of an update as width, length, vocabulary and batch grow"
    )
    growth.add_argument("--plot", type=Path, metavar="FILE", help="also draw it, as PNG or SVG")
    grokking = subjects.add_parser("grokking", help="when training pairs and held-out pairs are answered, by seed")
    grokking.add_argument("--seeds", type=int, default=5, metavar="N", help="number of seeds (default: 5)")
    add_preset(grokking, required=False, default="grokking")
    solve = subjects.add_parser("solve", help="time to train a preset to its goal, compared with a plain baseline")
    solve.add_argument("--seeds", type=int, default=5, metavar="N", help="number of seeds (default: 5)")
    solve.add_argument("--no-baseline", dest="baseline", action="store_false", help="without the baseline")
    add_preset(solve, required=False, default="digits-reversal-fast")
    subjects.add_parser("step", help="updates per second, compared with nn.Transformer")
    suite = subjects.add_parser("suite", help="each value of a setting, trained with several seeds and tested")
    suite.add_argument(
        "--each", default="task.split", metavar="FIELD", help="the setting, such as task.language (default: task.split)"
    )
    suite.add_argument("--values", metavar="A,B", help="its values (default: all)")
    suite.add_argument("--seeds", type=int, default=5, metavar="N", help="number of seeds (default: 5)")
    suite.add_argument(
        "--lengths", metavar="A-B", help="test on every ninth length of a range, such as 41-500, not on held-out pairs"
    )
    suite.add_argument("--per-length", type=int, default=20, metavar="N", help="inputs per length (default: 20)")
    suite.add_argument(
        "--per-set", type=int, default=0, metavar="N", help="also test on N pairs of each test set (default: 0, none)"
    )
    add_preset(suite, required=False, default="scan")
    sweeps = subjects.add_parser("sweeps", help="what a run of a sweep costs beside its training")
    sweeps.add_argument("--ray", metavar="ADDRESS", help="also measure runs on a Ray cluster, as sweep --ray")
    translate = subjects.add_parser("translate", help="speed of translating, compared with CTranslate2")
    translate.add_argument(
        "--run", default="translate-en-de-shipped", metavar="NAME", help="name of the run (default: the one that ships)"
    )
    add_pairs(translate)
    translate.add_argument(
        "--sentences",
        type=int,
        default=1_000,
        metavar="N",
        help="sources, of the test set and, if it has fewer, of the training set (default: 1,000)",
    )
    translate.add_argument("--rounds", type=int, default=5, metavar="N", help="timed rounds (default: 5)")
    translate.add_argument("--beam-size", type=int, default=5, metavar="N", help="size of the beam (default: 5)")
    translate.add_argument(
        "--batch-sizes",
        type=int,
        nargs="+",
        metavar="N",
        help="sources that both decode together (default: each batches in its own way)",
    )
    translate.add_argument("--int8", action="store_true", help="8-bit products instead of float32, in both")
    subjects.add_parser("waits", help="how long a person waits for each command and for what is pressed on the page")
    for subject in subjects.choices.values():
        add_json(subject)
