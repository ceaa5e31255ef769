"""The command line: ``python -m core COMMAND`` or, once installed, ``attention-lab COMMAND``.

Exit codes: 0 for success, 1 for a run or a check that failed, 2 for invalid input, which is reported in one line on
standard error, 130 if stopped by Ctrl+C, 143 for a training or an import of pairs stopped by SIGTERM. With ``--json``,
the last line of standard output is one JSON object; after an error its only key is ``error``.
"""

import argparse
import contextlib
import errno
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from core.cli import COMMANDS, EXAMPLES
from core.storage.error_messages import bounded
from core.storage.errors import InputError, LabError

# A name that a user typed, or a folder or disk that cannot be written to; other errors are bugs, with their traceback.
_OF_THE_MACHINE = {errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a console or file in another encoding may lack √ and →
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        words = _load_plugins(words)
        options = _parse(words, as_json=as_json)
        _check_folder(options.checkpoints)
        if getattr(options, "preset", None):
            from core.cli.arguments import check_preset  # not before: --help needs no pydantic

            check_preset(options)
        code = _module_of(options.command).run(options)
        sys.stdout.flush()
        return code
    except LabError as error:
        _report(error, as_json=as_json)
        return error.exit_code
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        _drop_output()
        return 1
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE:
            raise
        if error.filename is None:  # Python names no file if one that is open cannot be written to
            _drop_output()
            place = "standard output, or a file of the command"
        else:
            place = f"file={str(error.filename)!r}"
        _report(InputError(f"{place}: {error.strerror}"), as_json=as_json)
        return 2
    except KeyboardInterrupt:  # Ctrl+C, at a command that has nothing to save
        _print_error("interrupted", as_json=as_json)
        return 130


def _open_closed_streams() -> None:
    """Open the null device for streams that the caller closed (``>&-``), so that no file gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # each takes the lowest free descriptor
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends


def _drop_output() -> None:
    """Send what cannot be printed to the null device, since printing it would fail again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(bounded(message))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; the arguments of a command are added if it is chosen."""
    parser = _Parser(
        prog="python -m core",
        description="Train small sequence-to-sequence models and inspect their attention.",
        epilog=_examples("train", "decode") + "\n\nCOMMAND --help lists the arguments of a command and more examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # _load_plugins reads whole words
    )
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=_default_folder(),
        metavar="FOLDER",
        help="folder of runs (default: checkpoints/ of the project, or $ATTENTION_LAB_CHECKPOINTS)",
    )
    parser.add_argument(
        "--plugin",
        action="append",
        metavar="FILE",
        help="run a Python file that registers tasks, models, blocks, metrics or presets (core.plugins); "
        "before or after the command; repeatable",
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_CommandParser, title="commands"
    )
    for name, summary in COMMANDS.items():
        commands.add_parser(
            name,
            command=name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=_examples(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    return parser


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command with all its arguments, as the documentation lists them."""
    parser = argparse.ArgumentParser(prog=f"python -m core {name}")
    _add_arguments(parser, name)
    return parser


def _examples(*commands: str) -> str:
    """Format the examples of commands, as they are typed."""
    lines = [f"  python -m core {command} {example}".rstrip() for command in commands for example in EXAMPLES[command]]
    return "\n".join(["examples:", *lines])


def _parse(words: Sequence[str], *, as_json: bool) -> argparse.Namespace:
    """Parse a command line; a mistake in it, for which argparse exits, is also printed as JSON if requested."""
    if not as_json:
        return build_parser().parse_args(words)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return build_parser().parse_args(words)
    except SystemExit as end:
        _print_error(errors.getvalue().strip().partition(": error: ")[2], as_json=end.code == 2)
        raise
    finally:
        sys.stderr.write(errors.getvalue())


def _load_plugins(words: Sequence[str]) -> list[str]:
    """Load the files that ``--plugin`` names, wherever it stands, and return the other words of the command line.

    That is before anything is parsed, because a preset may be of a family that a plugin registers.
    """
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, file = word.partition("=")
        if option != "--plugin":
            others.append(word)
            if word == "--":
                break
            continue
        file = file if equals else next(rest, "")
        if not file:
            raise InputError("--plugin needs a file")
        from core import plugins  # imports torch, which other commands do not wait for

        plugins.load(file)
    return [*others, *rest]


def _report(error: LabError, *, as_json: bool) -> None:
    """Print a user's error; under torchrun, one process of this machine does."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        message = bounded(str(error))
        print(f"error: {message}", file=sys.stderr)
        _print_error(message, as_json=as_json)


def _print_error(message: str, *, as_json: bool) -> None:
    if as_json:
        with contextlib.suppress(OSError):  # standard output is what failed
            print(json.dumps({"error": message}), flush=True)


class _CommandParser(_Parser):
    """The parser of one command; its arguments are added when it is first used."""

    def __init__(self, command: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._pending: str | None = command

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._pending:
            name, self._pending = self._pending, None
            _add_arguments(self, name)
        return super().parse_known_args(args, namespace)


def _add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    from core.cli.parsers import ARGUMENTS  # imports pydantic, which --help does not wait for

    ARGUMENTS[command](parser)


def _module_of(command: str) -> ModuleType:
    """Import the module of a command; ``import`` is a keyword of Python, so its module is ``import_run``."""
    return importlib.import_module(f"core.cli.{'import_run' if command == 'import' else command.replace('-', '_')}")


def _default_folder() -> Path | None:
    folder = os.environ.get("ATTENTION_LAB_CHECKPOINTS")
    return Path(folder) if folder else None


def _check_folder(folder: Path | None) -> None:
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(f"--checkpoints={folder} is a file; it must be a folder")


if __name__ == "__main__":
    sys.exit(main())
