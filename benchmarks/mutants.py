"""``bench mutants``: correct models broken by operators that know nothing of the doctor's checks, then examined.

An operator edits one node of the source of ``benchmarks.model_styles``: it drops an argument, an operand or a call,
swaps arguments, shifts a number, inverts a comparison or a mask, takes another special id, or detaches a result. A
mutant that raises is loud and not counted, nor is one that leaves predictions, loss and update as they were. A hash of
what was edited puts each mutant into the open half, which may be read while checks are written, or into the blind half.
"""

import argparse
import ast
import copy
import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import torch

from benchmarks import model_styles
from core.teaching.doctor import Examination, diagnose

SOURCE = Path(model_styles.__file__).read_text()
WORDS = {  # in the comment of a line: the words of a sentence that names what is wrong with it
    "causal": ("causal", "later token", "earlier logits"),
    "padding": ("PAD",),
    "position": ("order of", "position", "order."),
    "view": ("view",),
    "mask": ("mask",),
    "√d_k": ("√d_k",),
    "softmax": ("softmax", "attention weights"),
    "recurrent": ("PAD",),
    "shifted": ("shifted", "reads the token", "begin with BOS", "in the loss"),
    "loss": ("in the loss", "loss sign", "sum over", "loss rises"),
    "update": ("optimizer", "update changes"),
}
IDS = ("PAD", "BOS", "EOS")
NO_CHAIN = ("torch", "nn", "F", "math", "self")  # names before the dot of functions
SHARED = ("loss_of", "optimizer_of")


def drop_keyword(node: ast.expr) -> Iterator[ast.expr]:
    """Drop each argument that is passed by name."""
    if isinstance(node, ast.Call):
        for at in range(len(node.keywords)):
            yield _with(node, keywords=node.keywords[:at] + node.keywords[at + 1 :])


def swap_arguments(node: ast.expr) -> Iterator[ast.expr]:
    """Swap the first two arguments."""
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield _with(node, args=[node.args[1], node.args[0], *node.args[2:]])


def drop_operand(node: ast.expr) -> Iterator[ast.expr]:
    """Keep one operand of a sum, a product or a conjunction."""
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult | ast.FloorDiv | ast.Pow):
        yield node.left
        if isinstance(node.op, ast.Add | ast.BitAnd):
            yield node.right


def drop_call(node: ast.expr) -> Iterator[ast.expr]:
    """Leave out a method of a chain."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _owner(node) not in NO_CHAIN:
        yield node.func.value


def shift_number(node: ast.expr) -> Iterator[ast.expr]:
    """Add one to an integer, or subtract it."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for step in (1, -1):
            yield ast.Constant(node.value + step)


def invert(node: ast.expr) -> Iterator[ast.expr]:
    """Invert a comparison, or drop an inversion."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        yield _with(node, ops=[ast.NotEq() if isinstance(node.ops[0], ast.Eq) else ast.Eq()])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield node.operand


def other_id(node: ast.expr) -> Iterator[ast.expr]:
    """Take another special id."""
    if isinstance(node, ast.Name) and node.id in IDS:
        yield from (ast.Name(other, ast.Load()) for other in IDS if other != node.id)


def other_source(node: ast.expr) -> Iterator[ast.expr]:
    """Read the other sequence."""
    others = {"src": "tgt_in", "tgt_in": "src", "x": "memory", "memory": "x"}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in others:
        yield ast.Name(others[node.id], ast.Load())


def detach(node: ast.expr) -> Iterator[ast.expr]:
    """Cut the gradient of a submodule's result."""
    if isinstance(node, ast.Call) and _owner(node) == "self":
        yield ast.Call(ast.Attribute(node, "detach", ast.Load()), [], [])


def _owner(call: ast.Call) -> str:
    """Return the name before the dot of a called attribute; "" if there is none."""
    owner = getattr(call.func, "value", None)
    return owner.id if isinstance(owner, ast.Name) else ""


OPERATORS: tuple[Callable[[ast.expr], Iterator[ast.expr]], ...] = (
    *(drop_keyword, swap_arguments, drop_operand, drop_call, shift_number, invert, other_id, other_source, detach),
)


@dataclass(frozen=True)
class Mutant:
    """A broken source.

    Attributes:
        what: the operator, the function and the line, as it was and as it is.
        words: those that name the cause, by the comment of the line; none if the line has no comment.
        owner: the class or function that was edited.
    """

    what: str
    words: tuple[str, ...]
    owner: str
    source: str

    @property
    def is_open(self) -> bool:
        """Whether it belongs to the half that may be read."""
        return hashlib.sha256(self.what.encode()).digest()[0] % 2 == 0


def mutants() -> Iterator[Mutant]:
    """Yield every mutant of everything that runs after construction."""
    tree, lines = ast.parse(SOURCE), SOURCE.splitlines()
    functions: list[tuple[str, ast.FunctionDef]] = []
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            functions += [(each.name, it) for it in each.body if isinstance(it, ast.FunctionDef)]
        elif isinstance(each, ast.FunctionDef) and each.name in SHARED:
            functions.append((each.name, each))
    for owner, function in functions:
        if function.name != "__init__":
            for node in filter(_is_expression, ast.walk(function)):
                for operator in OPERATORS:
                    for number, new in enumerate(operator(node)):
                        text = _replaced(lines, node, new)
                        line = lines[node.lineno - 1]
                        tags = line.partition("  # ")[2].split(", ")
                        words = tuple(word for tag in tags for word in WORDS.get(tag, ()))
                        words = ("detached", "no gradient") if operator is detach else words
                        what = f"{operator.__name__} {owner}.{function.name}, column {node.col_offset}"
                        now = " ".join(ast.unparse(new).split())
                        yield Mutant(f"{what} {number}: {line.strip()} → {now}", words, owner, text)


def _is_expression(node: ast.AST) -> TypeGuard[ast.expr]:
    return isinstance(node, ast.expr)


def _with(node: ast.expr, **changes: Any) -> ast.expr:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _replaced(lines: list[str], node: Any, new: ast.expr) -> str:
    """Return the source with a node replaced; offsets of nodes count bytes."""
    before = "\n".join(lines[: node.lineno - 1]).encode() + b"\n" + lines[node.lineno - 1].encode()[: node.col_offset]
    rest = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    return "\n".join([before.decode() + f"({ast.unparse(new)})" + rest, *lines[node.end_lineno :]])


def _effects(module: ModuleType, style: str) -> list[torch.Tensor]:
    """Return predictions that count, the loss, and the weights after an update."""
    torch.manual_seed(0)
    model = module.STYLES[style]().double().eval()
    src, tgt = module.make_batch()
    logits = model(src, tgt[:, :-1])[tgt[:, 1:] != module.PAD]
    loss = module.loss_of(model, src, tgt)
    loss.backward()
    module.optimizer_of(model).step()
    return [logits.detach(), loss.detach(), *(each.detach() for each in model.parameters())]


def _differ(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) != len(other) or any(
        a.shape != b.shape or not torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(one, other, strict=True)
    )


def examine(module: ModuleType, style: str) -> Examination:
    """Diagnose a model of a style, with its loss and optimizer."""
    torch.manual_seed(0)
    model = module.STYLES[style]()
    src, tgt = module.make_batch()
    optimizer = module.optimizer_of(model)
    return diagnose(model, src, tgt, **module.IDS, loss=module.loss_of, optimizer=optimizer)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        word: loud, same, missed, found or named.
        examination: if it was made.
        predicts_otherwise: whether a prediction that counts is another one, rather than only the loss or the update.
    """

    word: str
    examination: Examination | None = None
    predicts_otherwise: bool = False


def judged(mutant: Mutant, style: str, correct: list[torch.Tensor]) -> Verdict:
    """Return what became of a mutant in a style."""
    module = ModuleType("mutant")
    try:
        exec(compile(mutant.source, "mutant", "exec"), module.__dict__)  # noqa: S102 - our own file, with an edit
        effects = _effects(module, style)
    except Exception:  # noqa: BLE001 - any error is loud
        return Verdict("loud")
    if not _differ(effects, correct):
        return Verdict("same")
    examination = examine(module, style)
    said = " ".join(f"{each.check} {each.sentence}" for each in examination.alarms)
    found = "named" if any(word in said for word in mutant.words) else "found" if said else "missed"
    return Verdict(found, examination, _differ(effects[:1], correct[:1]))


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Examine all mutants in every style that runs the edited code; print the table, and the open half's misses."""
    warnings.simplefilter("ignore")
    results: dict[str, Counter[str]] = {"open": Counter(), "blind": Counter()}
    for style, build in model_styles.STYLES.items():
        correct = _effects(model_styles, style)
        runs = {type(each).__name__ for each in build().modules()} | set(SHARED)
        for mutant in mutants():
            if mutant.owner not in runs:
                continue
            verdict = judged(mutant, style, correct)
            word, examination = verdict.word, verdict.examination
            half = "open" if mutant.is_open else "blind"
            counts = results[half]
            counts[word] += 1
            counts["other predictions"] += verdict.predicts_otherwise
            counts["found by predictions"] += verdict.predicts_otherwise and word != "missed"
            counts["with a comment"] += bool(mutant.words) and examination is not None
            if options.show and half == "open" and examination and word != "named":
                print(f"{word:6} {style:20} {mutant.what}")
                print("".join(f"         {each.check}: {each.sentence}\n" for each in examination.alarms), end="")
    print(
        f"{'half':6} {'mutants':>8} {'loud':>6} {'same':>6} {'changed':>8} {'detected':>9} {'predictions':>12} "
        f"{'detected':>9} {'named, of commented':>23}"
    )
    return {half: _row(half, counts) for half, counts in results.items()}


def _row(half: str, counts: Counter[str]) -> dict[str, float]:
    changed = counts["missed"] + counts["found"] + counts["named"]
    total = changed + counts["loud"] + counts["same"]
    detected = (counts["found"] + counts["named"]) / max(1, changed)
    named = counts["named"] / max(1, counts["with a comment"])
    predictions = counts["other predictions"]
    by_predictions = counts["found by predictions"] / max(1, predictions)
    print(
        f"{half:6} {total:8} {counts['loud']:6} {counts['same']:6} {changed:8} {detected:9.1%} {predictions:12} "
        f"{by_predictions:9.1%} {named:23.1%}"
    )
    return {
        "mutants": total,
        "changed": changed,
        "detected": detected,
        "predictions": predictions,
        "detected_by_predictions": by_predictions,
        "named": named,
    }
