"""The arguments of every command.

They are apart from the commands, most of which import PyTorch: ``--help`` and a wrong option need not wait for it.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from core.cli.arguments import (
    Instead,
    add_device,
    add_ensemble,
    add_json,
    add_log,
    add_pairs,
    add_preset,
    add_run,
    add_sequences,
    add_strategy,
)
from core.cli.bench_subjects import add_subjects
from core.evaluation.group_tests import Measure, Test
from core.evaluation.ngram import MAX_ORDER
from core.runs.names import MAX_TITLE_LENGTH
from core.runs.sweeps.sweep import Metric

HARDWARE = ("zero", "cpu", "cpu-upgrade")
STATIC = "static"  # of deploy's --hardware: a site without a server
HELP_FOLDER = Path("/usr/share/libreoffice/help")
METHODS = ("parts", "lens", "decoder-lens", "tokens", "value-zeroing", "patching")  # of ``analyze --why``
PAIR_FORMATS = ("tsv", "csv", "json", "jsonl", "parquet", "dictionary", "scan")
TABLE_FORMATS = ("text", "csv", "latex")


def _presets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="print this preset as YAML: every key that --set takes, with its value and its meaning",
    )
    parser.add_argument(
        "--times",
        action="store_true",
        help="also count parameters, and measure for about a minute how long each preset trains here on one thread",
    )
    add_json(parser)


def _runs(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def _classes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--close",
        action="append",
        default=[],
        metavar="ID",
        help="end this class, as its teacher would; the option may be repeated",
    )
    add_json(parser)


def _rename(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="name of the run")
    parser.add_argument(
        "title", metavar="TITLE", help=f'its new title, 1 to {MAX_TITLE_LENGTH} characters; "" restores the default'
    )
    add_json(parser)


def _train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="start_from",
        action=Instead,
        other=add_preset(parser),
        metavar="RUN",
        help="begin with the best weights of this run, not with random ones; without --preset, with its preset too",
    )
    parser.add_argument("--run", metavar="NAME", help="name of the new run (default: preset and number)")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="train N runs with consecutive seeds, named NAME-seed-0 and so on"
    )
    add_device(parser)
    add_log(parser)
    add_json(parser)


def _sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="SWEEP.yaml", help="the sweep; docs/sweeps.md lists its keys")
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="runs to train at the same time, each in a process with one thread (default: the number of cores)",
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="train on a Ray cluster: HOST:PORT of its head, or auto on one of its nodes (docs/sweeps.md); "
        "--jobs then limits the runs on all nodes (default: as many as the nodes have cores or GPUs for)",
    )
    parser.add_argument(
        "--extend", action="store_true", help="add the seeds, values or trials that the file has more than before"
    )
    parser.add_argument("--index", type=int, metavar="K", help="search: grid: train part K of N only, from 0")
    parser.add_argument("--of", type=int, metavar="N", help="number of parts, such as the size of a job array")
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="database of Optuna's study, such as postgresql://… (default: a journal file in the sweep's folder)",
    )
    add_log(parser)
    add_json(parser)


def _sweep_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", metavar="NAME", help="name of the sweep")
    parser.add_argument("--format", choices=TABLE_FORMATS, default="text", help="format to print (default: text)")
    parser.add_argument("--metric", choices=get_args(Metric), help="metric to show (default: the sweep's goal)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="also draw the trials along the axis --by")
    parser.add_argument("--by", metavar="KEY", help="plot: the axis, such as training.learning_rate")
    parser.add_argument("--level", type=float, metavar="X", help="plot: a dashed line; counts the trials that reach it")
    add_json(parser)


def _sweep_best(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", metavar="NAME", help="name of the sweep")
    parser.add_argument(
        "--save-preset", type=Path, metavar="FILE.yaml", help="write the preset with the best settings and first seed"
    )
    add_sequences(parser, default=10_000)
    add_json(parser)


def _resume(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="training.steps=N",
        help="extend the run, also a finished one, to N training steps; the schedule goes on as that of N steps",
    )
    add_device(parser)
    add_log(parser)
    add_json(parser)


def _evaluate(parser: argparse.ArgumentParser) -> None:
    add_ensemble(parser)
    add_sequences(parser, default=10_000)
    add_pairs(parser)
    add_strategy(parser)
    add_json(parser)


def _decode(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("input", metavar="INPUT", help='the input sequence, such as "4 8 2 9"')
    parser.add_argument(
        "--prefix", default="", metavar="TOKENS", help='tokens that the output must start with, such as "9 2"'
    )
    _add_interventions(parser)
    add_strategy(parser)
    add_json(parser)


def _add_interventions(parser: argparse.ArgumentParser) -> None:
    """Add the options for interventions on heads; whether the model has these heads is checked when it is loaded."""
    group = parser.add_argument_group("interventions on attention heads", "--ablate and --pattern may be repeated.")
    group.add_argument(
        "--ablate",
        action="append",
        default=[],
        metavar="HEAD",
        help="ablate a head (cross.2.1), a layer (cross.2) or a block (encoder, decoder, cross)",
    )
    group.add_argument(
        "--ablate-with",
        choices=("zero", "mean"),
        default="zero",
        help="replacement for the output of an ablated head (default: zero)",
    )
    group.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="HEAD=PATTERN",
        help='fix the attention pattern of a cross-attention head: "diagonal", "anti-diagonal" or "position K" '
        "(0 is BOS; above the last, EOS)",
    )


def _translate(parser: argparse.ArgumentParser) -> None:
    add_ensemble(parser)
    add_strategy(parser)
    parser.add_argument(
        "--int8",
        action="store_true",
        help="multiply in 8 bits, which is faster for many lines of a wide model and changes a few outputs",
    )
    parser.add_argument(
        "--json", action="store_true", help="print all outputs as one JSON object at the end, instead of line by line"
    )


def _analyze(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_sequences(parser, default=1_000)
    add_pairs(parser)
    parser.add_argument(
        "--health",
        action="store_true",
        help="print instead how gradients, updates and heads developed over the training",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="with --health: write every figure to a CSV file")
    _add_why(parser)
    add_json(parser)


def _add_why(parser: argparse.ArgumentParser) -> None:
    """Add ``--why`` and the options that belong to it."""
    group = parser.add_argument_group(
        "why this answer", "Explain one predicted token instead of scoring heads; all methods unless --method is given."
    )
    group.add_argument("--why", metavar="INPUT", help='the input with the answer to explain, such as "4 8 2 9"')
    group.add_argument("--step", type=int, metavar="N", help="step of the answer, from 1 (default: 1)")
    group.add_argument("--token", metavar="T", help="token to explain (default: the one the model predicts)")
    group.add_argument("--foil", metavar="T", help='token to compare it with: why 9, "not 2"?')
    group.add_argument("--method", metavar="A,B", help=f"methods to use, of {', '.join(METHODS)}")
    group.add_argument(
        "--change",
        metavar="K=T",
        help="patching: the changed input has token T at position K, from 1 (default: chosen by the model)",
    )


def _compare(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--runs", metavar="A,B", help="names of runs; NAME also stands for NAME-seed-0, NAME-seed-1 …")
    what.add_argument(
        "--groups",
        nargs="+",
        metavar="LABEL=RUNS",
        help="compare groups of runs instead, up to 200 runs: names or patterns such as pre=a-*,b and post=c-*",
    )
    what.add_argument("--sweep", metavar="NAME", help="compare the trials of a sweep as groups")
    groups = parser.add_argument_group("with --groups or --sweep")
    groups.add_argument("--by", metavar="KEYS", help="sweep: group by these axes, such as model.norm, not by trial")
    groups.add_argument("--baseline", metavar="LABEL", help="compare each group with this one only, not every two")
    groups.add_argument(
        "--measure",
        choices=get_args(Measure),
        help="what to compare on the test set (default: loss, or the sweep's goal)",
    )
    groups.add_argument(
        "--test",
        choices=get_args(Test),
        help="Welch's t-test, or a permutation test of the difference of the means (default: welch)",
    )
    groups.add_argument("--format", choices=TABLE_FORMATS, help="format to print (default: text)")
    add_sequences(parser, default=10_000)
    add_pairs(parser)
    parser.add_argument(
        "--lengths",
        nargs="?",
        const="",
        metavar="A-B",
        help="also compare by input length: the given range, such as 41-100, or up to twice the longest trained on",
    )
    parser.add_argument("--per-length", type=int, default=100, metavar="N", help="inputs per length (default: 100)")
    add_json(parser)


def _report(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_sequences(parser, default=10_000)
    add_pairs(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder of the report (default: report/ in the run's folder)"
    )
    add_json(parser)


def _perplexity(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--order", type=int, default=MAX_ORDER, metavar="N", help=f"order of the longest n-gram (default: {MAX_ORDER})"
    )
    add_json(parser)


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", metavar="NAME", help="name of the run to diagnose")
    add_preset(parser, required=False)
    parser.add_argument(
        "--steps", type=int, default=0, metavar="N", help="updates to train a preset first (default: 0)"
    )
    parser.add_argument(
        "--all-bugs",
        action="store_true",
        help="doctor benchmark: switch on every bug, and diagnose every preset; with --steps also after training, "
        "N updates for bugs and long presets, all updates for the others (saved in _doctor/ beside the runs)",
    )
    add_json(parser)


def _gradients(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_pairs(parser)
    parser.add_argument(
        "--updates", type=int, default=8, metavar="N", help="updates whose batches are measured (default: 8)"
    )
    add_json(parser)


def _lesson(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help='the lesson, or "all" (default: list the lessons)')
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder of the results (default: the lessons' own folder)"
    )
    add_json(parser)


def _milestones(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="milestones, 1 to 5 (default: all)")
    parser.add_argument(
        "--module",
        type=Path,
        metavar="FILE",
        help="your Python file to check; it is imported, so it runs with all your rights",
    )
    add_json(parser)


def _describe(parser: argparse.ArgumentParser) -> None:
    add_preset(parser)
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="sequences per batch (default: several batch sizes)"
    )
    parser.add_argument(
        "--length", type=int, metavar="N", help="tokens of source and target (default: several lengths)"
    )
    parser.add_argument(
        "--shapes", action="store_true", help="also trace the tensors of a real batch through the model, in order"
    )
    add_json(parser)


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="pairs as .tsv, .csv, .json, .jsonl or .parquet, perhaps with .gz; or sources, one per line",
    )
    parser.add_argument("--targets", type=Path, metavar="FILE", help="targets, one per line, for the sources in FILE")
    parser.add_argument(
        "--test",
        action="append",
        nargs="+",
        default=[],
        metavar=("[NAME=]FILE", "TARGETS"),
        help="test pairs, which are never trained on: one file of pairs, or a source and a target file. May be "
        "repeated: each test set with a name is measured by itself",
    )
    parser.add_argument(
        "--validation", nargs="+", metavar=("FILE", "TARGETS"), help="validation pairs, which are never trained on"
    )
    parser.add_argument(
        "--columns",
        metavar="ROLE,ROLE…",
        help="what each column is (default: recognized, and said): source, target, answers (this and each later column "
        "is a correct target), split (train, test, validation, or the name of a test set), set (the name of a held-out "
        "pair's test set), skip. Several sources are joined",
    )
    parser.add_argument(
        "--format",
        choices=PAIR_FORMATS,
        help="format of the files (default: by their lines, or by suffix); dictionary: as the CMU Pronouncing "
        "Dictionary, WORD and WORD(2); scan: IN: … OUT: …",
    )
    parser.add_argument(
        "--tokens",
        default="auto",
        metavar="KIND[,KIND]",
        help='tokens of both sides, or of source and target: "character", "word", "symbol" (split at spaces), '
        '"inflection" (of sources such as reiterar V;NEG) or "subword" (on both sides); "auto" (default) chooses them '
        "by the pairs and says why",
    )
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="use the model and training of this preset or YAML file (default: chosen by the number of pairs)",
    )
    parser.add_argument("--name", help="name of the preset (default: named after FILE)")
    parser.add_argument("--out", type=Path, metavar="FILE.yaml", help="file of the preset (default: named after FILE)")
    add_json(parser)


def _corpus(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(
        dest="text",
        required=True,
        metavar="TEXT",
        title="texts",
        help="what the pairs are made from",
        parser_class=argparse.ArgumentParser,
    )
    manual = kinds.add_parser("help", help="the LibreOffice Help in two languages, as installed on this machine")
    manual.add_argument("target", metavar="LANGUAGE", help="target language, such as de, fr or pt-BR")
    manual.add_argument("--source", default="en-US", metavar="LANGUAGE", help="source language (default: en-US)")
    manual.add_argument(
        "--help-folder",
        type=Path,
        default=HELP_FOLDER,
        metavar="FOLDER",
        help=f"the installed Help, with a folder for each language (default: {HELP_FOLDER})",
    )
    everyday = kinds.add_parser("tatoeba", help="a list of everyday sentences from https://www.manythings.org/anki")
    everyday.add_argument(
        "file", type=Path, metavar="FILE", help="a zip of the site, such as deu-eng.zip, or the text file in it"
    )
    for each in (manual, everyday):
        each.add_argument(
            "--out",
            type=Path,
            required=True,
            metavar="FILE.tsv",
            help="file of the pairs: source, target and, for held-out pairs, test or validation; .tsv.xz compresses it",
        )
        add_json(each)


def _export(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, metavar="OUT", help="a new .safetensors, .zip or .onnx file, or folder")
    target.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="a new page that works without a server or a network, to send to others",
    )
    parser.add_argument(
        "--whole", action="store_true", help="a folder with vocabulary, model card and pairs as well, as in a .zip"
    )
    parser.add_argument("--half", action="store_true", help="a weight file in float16, which is half as large")
    add_json(parser)


def _import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="file, zip or folder written by export, or a run's best.safetensors"
    )
    _add_new_name(parser)
    add_json(parser)


def _add_new_name(parser: argparse.ArgumentParser) -> None:
    """Add ``--run NAME``, the name of the run to create."""
    parser.add_argument("--run", metavar="NAME", help="name of the new run (default: preset and number)")


def _import_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        type=Path,
        metavar="FOLDER|FILE",
        help="folder of a model in Hugging Face's format: config.json, model.safetensors and, for text, the "
        "tokenizer's files; or file of the state dict of a model built on nn.Transformer (.pt or .safetensors)",
    )
    parser.add_argument(
        "--mapping", type=Path, metavar="FILE", help="which tensors of a state dict are which (default: proposed)"
    )
    parser.add_argument(
        "--propose", type=Path, metavar="FILE", help="only write the proposed mapping of a state dict to a new file"
    )
    for side, of in (("source", "sources"), ("target", "answers")):
        parser.add_argument(
            f"--{side}-language",
            metavar="CODE",
            help=f"language of {of}, for mBART, M2M-100 and NLLB, such as en_XX, en or eng_Latn (default: the "
            "tokenizer's)",
        )
    parser.add_argument(
        "--pairs",
        type=Path,
        metavar="FILE",
        help="pairs to measure the model on, as .tsv, .csv or .jsonl; without them it decodes and shows its attention",
    )
    _add_new_name(parser)
    add_json(parser)


def _push(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "repo", metavar="USER/NAME", help="a model repository on the Hub; created, private, if it does not exist"
    )
    parser.add_argument("--with-data", action="store_true", help="upload your own training pairs too, if there are any")
    parser.add_argument("--public", action="store_true", help="make a newly created repository public")
    add_json(parser)


def _pull(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("repo", metavar="USER/NAME", help="a model repository on the Hub")
    parser.add_argument("--revision", metavar="NAME", help="branch, tag or commit (default: the newest)")
    _add_new_name(parser)
    add_json(parser)


def _deploy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("space", metavar="OWNER/NAME", help="the Space; created if it does not exist")
    parser.add_argument(
        "--hardware",
        choices=(*HARDWARE, STATIC),
        help="what it runs on (default: zero for a new Space, no change for another); static is a site without a "
        "server, which trains in the visitor's browser",
    )
    parser.add_argument("--private", action="store_true", help="let only its owner see a newly created Space")
    parser.add_argument("--dry-run", action="store_true", help="print every file and what it costs; upload nothing")
    add_json(parser)


def _site(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new folder, or an earlier site")
    parser.add_argument(
        "--presets",
        metavar="A,B",
        help="presets that can be trained there (default: tiny, those of digits, numbers and words with a Transformer, "
        "and addition)",
    )
    parser.add_argument(
        "--runs",
        metavar="A,B",
        help="finished runs to decode with; the site opens with the first (default: the two that ship)",
    )
    add_json(parser)


ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "presets": _presets,
    "runs": _runs,
    "rename": _rename,
    "classes": _classes,
    "train": _train,
    "sweep": _sweep,
    "sweep-table": _sweep_table,
    "sweep-best": _sweep_best,
    "resume": _resume,
    "evaluate": _evaluate,
    "decode": _decode,
    "translate": _translate,
    "analyze": _analyze,
    "compare": _compare,
    "report": _report,
    "perplexity": _perplexity,
    "doctor": _doctor,
    "gradients": _gradients,
    "lesson": _lesson,
    "milestones": _milestones,
    "describe": _describe,
    "data": _data,
    "corpus": _corpus,
    "export": _export,
    "import": _import,
    "import-model": _import_model,
    "push": _push,
    "pull": _pull,
    "deploy": _deploy,
    "site": _site,
    "bench": add_subjects,
}
"""Functions that add the arguments of each command to its parser."""
