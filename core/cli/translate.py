"""``translate``: decode every line of standard input with a run."""

import argparse
import io
import json
import sys
from collections.abc import Iterable, Iterator

from tqdm import tqdm

from core.cli.arguments import format_strategy, loaded_run, strategy_from
from core.generation.translation import WINDOW, translate
from core.models.int8 import int8_copy


def run(options: argparse.Namespace) -> int:
    """Print the output for each line, in order; a line that cannot be decoded gives an empty one and exit code 1."""
    strategy = strategy_from(options)
    loaded = loaded_run(options)
    model = int8_copy(loaded.model) if options.int8 else loaded.model
    if isinstance(sys.stdout, io.TextIOWrapper):  # UTF-8 as the input, also where the system's encoding is another
        sys.stdout.reconfigure(encoding="utf-8")
    refused: dict[int, str] = {}  # reasons by line number, of lines that are not text, until they are reported
    lines = _lines(sys.stdin.buffer, refused)
    outputs = []  # only for JSON, so that memory does not grow with the number of lines
    first_note, num_noted, code = "", 0, 0
    name = format_strategy(strategy)
    with tqdm(desc=name, unit=" sentences", file=sys.stderr, disable=None, leave=False) as bar:  # on a terminal only
        results = translate(model, loaded.task, lines, strategy=strategy, report=bar.update)
        for number, result in enumerate(results, start=1):
            problem = refused.pop(number, result.problem)
            if options.json:
                outputs.append(
                    {"line": number, "output": result.output, "problem": problem or None, "note": result.note or None}
                )
            else:
                print(result.output, flush=number % WINDOW == 0)  # before it waits for more lines
            if problem:
                bar.write(f"line {number}: {problem}", file=sys.stderr)
                code = 1
            elif result.note:
                first_note = first_note or f"line {number}: {result.note}"
                num_noted += 1
    sys.stdout.flush()  # without a reader, nothing more is said
    if num_noted:
        others = f"; {num_noted - 1:,} more lines have such a note, see --json" if num_noted > 1 else ""
        print(first_note + others, file=sys.stderr)
    if options.json:
        print(json.dumps({"run": loaded.run, "strategy": strategy.model_dump(), "lines": outputs}))
    return code


def _lines(file: Iterable[bytes], refused: dict[int, str]) -> Iterator[str]:
    """Yield the lines of a file; for a line that is not UTF-8 an empty text, with the reason in ``refused``."""
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            refused[number] = f"byte {error.start + 1} is not UTF-8"
            yield ""
