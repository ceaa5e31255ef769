"""The command line: ``python -m core COMMAND``, with ``--help`` for what there is.

Bad input ends with exit code 2 and one line on standard error; ``--json`` puts one JSON object on the last line
of standard output.
"""

import argparse
import importlib
import os
import sys
from pathlib import Path

from core.evaluation.ngram import MAX_ORDER
from core.storage.errors import InputError, LabError


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 for a run that failed, or 2 for bad input."""
    options = _parser().parse_args(arguments)
    # Imported only now, and only this one: `presets` need not wait for torch.
    command = importlib.import_module(f"core.cli.{options.command}")
    try:
        _check_folder(options.checkpoints)
        code = command.run(options)
        sys.stdout.flush()
        return code
    except LabError as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # of the processes that torchrun starts here, one speaks
            print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m core", description="Train and inspect small seq2seq models.")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=_default_folder(),
        metavar="FOLDER",
        help="where runs are kept (default: checkpoints/ of the project, or $ATTENTION_LAB_CHECKPOINTS)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train a preset and keep it as a run")
    train.add_argument("--run", metavar="NAME", help="name of the new run (default: a made-up one)")
    train.add_argument(
        "--seeds", type=int, metavar="N", help="train N runs, NAME-seed-0 and so on, from the preset's seed on"
    )
    _add_preset(train)
    _add_device(train)
    _add_json(train)

    resume = commands.add_parser("resume", help="continue a stopped or interrupted run")
    _add_run(resume)
    _add_device(resume)
    _add_json(resume)

    evaluate = commands.add_parser("evaluate", help="measure a run on held-out test sequences")
    _add_run(evaluate)
    evaluate.add_argument("--sequences", type=int, default=10_000, help="how many (default: 10000)")
    _add_strategy(evaluate)
    _add_json(evaluate)

    analyse = commands.add_parser("analyse", help="measure where every attention head of a run looks")
    _add_run(analyse)
    analyse.add_argument("--sequences", type=int, default=1_000, help="test sequences to decode (default: 1000)")
    _add_json(analyse)

    compare = commands.add_parser("compare", help="compare runs of one task on the same held-out inputs")
    compare.add_argument(
        "--runs", required=True, metavar="A,B", help="names of runs; NAME also stands for NAME-seed-0, NAME-seed-1 …"
    )
    compare.add_argument("--sequences", type=int, default=10_000, help="how many inputs (default: 10000)")
    compare.add_argument(
        "--lengths",
        nargs="?",
        const="",
        metavar="A-B",
        help="also by length: of these lengths, such as 41-100, or as far as charts by length go",
    )
    compare.add_argument("--per-length", type=int, default=100, metavar="N", help="inputs of each (default: 100)")
    _add_json(compare)

    perplexity = commands.add_parser("perplexity", help="measure a run that models text, beside n-grams")
    _add_run(perplexity)
    perplexity.add_argument("--order", type=int, default=MAX_ORDER, help=f"longest n-gram (default: {MAX_ORDER})")
    _add_json(perplexity)

    decode = commands.add_parser("decode", help="let a run answer one input")
    _add_run(decode)
    decode.add_argument("input", help='for example "4 8 2 9"')
    decode.add_argument("--prefix", default="", metavar="TOKENS", help='what the answer must begin with, e.g. "9 2"')
    _add_edits(decode)
    _add_strategy(decode)
    _add_json(decode)

    _add_bench(commands)

    report = commands.add_parser("report", help="measure a run and write a report on it")
    _add_run(report)
    report.add_argument("--sequences", type=int, default=10_000, help="test sequences to use (default: 10000)")
    report.add_argument("--out", type=Path, metavar="FOLDER", help="where to (default: report/ in the run's folder)")
    _add_json(report)

    doctor = commands.add_parser("doctor", help="examine a run or a preset: what is wrong with it")
    doctor.add_argument("--run", metavar="NAME", help="name of a run")
    _add_preset(doctor, required=False)
    doctor.add_argument("--steps", type=int, default=0, metavar="N", help="updates to train it first (default: 0)")
    doctor.add_argument(
        "--all-bugs",
        action="store_true",
        help="switch every bug on, and examine all presets: a table; with --steps also after training, that "
        "is N updates of bugs and long presets, and all of the others (kept in _doctor/, beside the runs)",
    )
    _add_json(doctor)

    lesson = commands.add_parser("lesson", help="train a lesson's pair, right and broken; without a name, list them")
    lesson.add_argument("name", nargs="?", help='the lesson, or "all"')
    lesson.add_argument("--out", type=Path, metavar="FOLDER", help="for the results (default: the lessons' own folder)")
    _add_json(lesson)

    describe = commands.add_parser("describe", help="show a preset's model: parameters, shapes, memory")
    _add_preset(describe)
    describe.add_argument("--batch-size", type=int, help="sequences in a batch (default: several sizes)")
    describe.add_argument(
        "--shapes", action="store_true", help="also the tensors of a real batch on its way through the model, in order"
    )
    describe.add_argument("--length", type=int, help="tokens of source and target (default: several lengths)")
    _add_json(describe)

    export = commands.add_parser("export", help="write a run into one file, a zip or a folder, to give away")
    _add_run(export)
    export.add_argument(
        "--out", type=Path, required=True, metavar="OUT", help="a file, .zip, .onnx or folder not there yet"
    )
    export.add_argument(
        "--whole", action="store_true", help="a folder with vocabulary, model card and pairs too, as a .zip has them"
    )
    _add_json(export)

    taken = commands.add_parser("import", help="make a run of what export wrote, after checking all that is in it")
    taken.add_argument("file", type=Path, metavar="FILE", help="what export wrote, or a run's best.safetensors")
    taken.add_argument("--run", metavar="NAME", help="name of the new run (default: a made-up one)")
    _add_json(taken)

    push = commands.add_parser("push", help="put a run on the Hugging Face Hub, as export --whole writes it")
    _add_run(push)
    push.add_argument("repo", metavar="USER/NAME", help="a repository of models; made, and private, if not there yet")
    push.add_argument("--with-data", action="store_true", help="send your own pairs, if it learned such, too")
    push.add_argument("--public", action="store_true", help="let everybody see a repository that is made")
    _add_json(push)

    pull = commands.add_parser("pull", help="make a run of what push put there, after checking all that is in it")
    pull.add_argument("repo", metavar="USER/NAME", help="a repository of models")
    pull.add_argument("--revision", metavar="NAME", help="branch, tag or commit (default: the newest)")
    pull.add_argument("--run", metavar="NAME", help="name of the new run (default: a made-up one)")
    _add_json(pull)

    data = commands.add_parser("data", help="look at your own pairs in a file, and make a preset that learns them")
    data.add_argument("file", type=Path, metavar="FILE", help="pairs: .tsv, .csv or .jsonl; or sources, a line each")
    data.add_argument("--targets", type=Path, metavar="FILE", help="the answers, a line each, to the lines of FILE")
    data.add_argument("--test", type=Path, metavar="FILE", help="pairs for the test, of which none is learned from")
    data.add_argument("--format", choices=("tsv", "csv", "jsonl"), help="of the files (default: by their names)")
    data.add_argument(
        "--tokens",
        default="character",
        metavar="KIND[,KIND]",
        help='of both sides, or of source and answer: "character", "word" or "symbol", what stands between spaces',
    )
    data.add_argument("--name", default="own-data", help="of the preset (default: own-data)")
    data.add_argument("--out", type=Path, metavar="FILE.yaml", help="for the preset (default: by the name of FILE)")
    _add_json(data)

    presets = commands.add_parser("presets", help="list the presets")
    _add_json(presets)
    return parser


def _add_bench(commands: argparse._SubParsersAction) -> None:
    bench = commands.add_parser("bench", help="measure how fast something is on this machine")
    subjects = bench.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    decode = subjects.add_parser("decode", help="writing answers, one by one and in bulk, beside Hugging Face's")
    load = subjects.add_parser("load", help="the page with many visitors, while two runs train")
    load.add_argument("--visitors", type=int, default=50, metavar="N", help="how many (default: 50)")
    load.add_argument("--minutes", type=float, default=1.0, metavar="N", help="for how long (default: 1)")
    memory = subjects.add_parser("memory", help="whether training and decoding take more the longer they last")
    page = subjects.add_parser("page", help="starting the app and the command line")
    replay = subjects.add_parser("replay", help="what keeping a replay costs a training")
    soak = subjects.add_parser("soak", help="whether anything grows as the page is used")
    soak.add_argument("--minutes", type=float, default=10.0, metavar="N", help="for how long (default: 10)")
    solve = subjects.add_parser("solve", help="training a preset until it solves its task, beside the plain recipe")
    solve.add_argument("--seeds", type=int, default=5, metavar="N", help="train N times (default: 5)")
    solve.add_argument("--alone", action="store_true", help="without the plain recipe")
    _add_preset(solve, required=False, default="digits-reversal-fast")
    step = subjects.add_parser("step", help="updates, beside nn.Transformer's")
    for subject in (decode, load, memory, page, replay, soak, solve, step):
        _add_json(subject)


def _default_folder() -> Path | None:
    named = os.environ.get("ATTENTION_LAB_CHECKPOINTS")
    return Path(named) if named else None


def _check_folder(folder: Path | None) -> None:
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"--checkpoints={folder} is a file; it must be a folder")


def _add_preset(parser: argparse.ArgumentParser, *, required: bool = True, default: str | None = None) -> None:
    known = f" (default: {default})" if default else ""
    parser.add_argument(
        "--preset", required=required, default=default, help=f"name of a preset, or path of a YAML file{known}"
    )
    parser.add_argument("--seed", type=int, help="short for --set training.seed=N")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a value, e.g. training.steps=500"
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", required=True, metavar="NAME", help="name of a run")


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda", "mps"),
        default="auto",
        help="what to compute on (default: auto, the fastest there is); a run may go on on another",
    )


def _add_strategy(parser: argparse.ArgumentParser) -> None:
    """Add the options of decoding; what they may be is checked with the rest of the strategy."""
    group = parser.add_argument_group("how tokens are chosen")
    group.add_argument("--strategy", default="greedy", metavar="KIND", help="greedy (default), beam or sample")
    group.add_argument("--repetition-penalty", metavar="R", help="makes written tokens less likely (default: 1, not)")
    group.add_argument("--beam-size", metavar="K", help="beam: beginnings kept at every step (default: 4)")
    group.add_argument("--length-penalty", metavar="A", help="beam: favours long answers (default: 1; 0 does not)")
    group.add_argument("--n-best", metavar="N", help="beam: answers to rank, at most K (default: 1)")
    group.add_argument("--temperature", metavar="T", help="sample: sharper below 1, flatter above (default: 1)")
    group.add_argument("--top-k", metavar="K", help="sample: from the K likeliest tokens (default: 0, all)")
    group.add_argument("--top-p", metavar="P", help="sample: from the likeliest with that share (default: 1, all)")
    group.add_argument("--seed", metavar="N", help="sample: start of the random numbers (default: 0)")


def _add_edits(parser: argparse.ArgumentParser) -> None:
    """Add what can be done to heads; whether the model has them is seen when it is loaded."""
    group = parser.add_argument_group("what is done to attention heads; each may be given several times")
    group.add_argument(
        "--ablate",
        action="append",
        default=[],
        metavar="HEAD",
        help="do without a head (cross.2.1), a layer's (cross.2) or a block's (encoder, decoder, cross)",
    )
    group.add_argument(
        "--ablate-with", choices=("zero", "mean"), default="zero", help="what stands in for its output (default: zero)"
    )
    group.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="HEAD=PATTERN",
        help='let a cross head look along the "diagonal", the "anti-diagonal" or at "position 3", 0 being BOS',
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


if __name__ == "__main__":
    sys.exit(main())
