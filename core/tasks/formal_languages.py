"""The fifteen formal languages of Delétang et al. 2023: how an input of a length is drawn, and what its answer is.

Neural Networks and the Chomsky Hierarchy, https://arxiv.org/abs/2207.02098, appendix A.1. Arithmetic is modulo 5, and
numbers of addition and multiplication have their least significant bit first, as there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from random import Random

from core.storage.errors import InputError
from core.text.validation import quote

MODULUS = 5
BITS, DIGITS = ("0", "1"), tuple(map(str, range(MODULUS)))
PARITY = ("even", "odd")
MOVES = {"left": -1, "stay": 0, "right": 1}
ACTIONS = ("pop", "push-0", "push-1")
MISSING = "?"
Symbols = Sequence[str]
Linear = tuple[int, int]  # c and k of c + k x


@dataclass(frozen=True)
class Language:
    """One language.

    Attributes:
        symbols, answers: the symbols of inputs and of answers.
        draw: draws an input of a length.
        answer: the answer to an input; InputError if the language does not have the input.
        positions: for each symbol of the answer, the positions in the input that have it; None if it is computed.
        shortest: length of the shortest input.
        step: difference between two lengths that follow each other.
    """

    symbols: tuple[str, ...]
    answers: tuple[str, ...]
    draw: Callable[[int, Random], list[str]]
    answer: Callable[[Symbols], list[str]]
    positions: Callable[[Symbols], list[list[int]]] | None = None
    shortest: int = 1
    step: int = 1


def _refuse(symbols: Symbols, rule: str) -> InputError:
    return InputError(f"input={quote(' '.join(symbols))} {rule}")


def _any_of(symbols: tuple[str, ...]) -> Callable[[int, Random], list[str]]:
    return lambda length, rng: rng.choices(symbols, k=length)


# --- answers of one symbol ----------------------------------------------------------------------------------------


def _even_pairs(symbols: Symbols) -> list[str]:
    """Return the parity of the number of neighbors 01 and 10."""
    return [PARITY[sum(one != other for one, other in pairwise(symbols)) % 2]]


def _parity(symbols: Symbols) -> list[str]:
    """Return the parity of the number of ones."""
    return [PARITY[symbols.count("1") % 2]]


def _cycle(symbols: Symbols) -> list[str]:
    """Return where the moves end on a circle of five places."""
    return [str(sum(MOVES[each] for each in symbols) % MODULUS)]


def _draw_arithmetic(length: int, rng: Random) -> list[str]:
    return [rng.choice("+-*") if at % 2 else rng.choice(DIGITS) for at in range(length)]


def _draw_brackets(length: int, rng: Random) -> list[str]:
    """Draw a digit, with a minus and brackets; above four symbols, a sum or difference of two in brackets."""
    if length <= 4:
        digit = rng.choice(DIGITS)
        return [[digit], ["-", digit], ["(", digit, ")"], ["(", "-", digit, ")"]][length - 1]
    left = rng.randrange(1, length - 3)
    operator = rng.choice("+-")
    return ["(", *_draw_brackets(left, rng), operator, *_draw_brackets(length - left - 3, rng), ")"]


def _draw_equation(length: int, rng: Random) -> list[str]:
    """Draw ``expression = value`` with an x instead of a digit: the first one at or after a random position."""
    expression = _draw_brackets(length - 2, rng)
    value = str(_value(expression)[0])
    start = rng.randrange(length - 2)
    digits = [position for position, each in enumerate(expression) if each in DIGITS]
    expression[min(digits, key=lambda position: (position - start) % len(expression))] = "x"
    return [*expression, "=", value]


def _arithmetic(symbols: Symbols) -> list[str]:
    return [str(_value(symbols)[0])]


def _solve(symbols: Symbols) -> list[str]:
    """Return x. Nothing is multiplied, so its factor is 1 or -1, which is its own inverse."""
    if symbols.count("x") != 1 or symbols.count("=") != 1 or symbols[-2] != "=" or symbols[-1] not in DIGITS:
        raise _refuse(symbols, "must have one x, and end with = and a digit")
    constant, factor = _value(symbols[:-2])
    return [str((int(symbols[-1]) - constant) * factor % MODULUS)]


def _value(symbols: Symbols) -> Linear:
    """Return the value of an expression modulo 5. Brackets are replaced by their value, innermost first."""
    open_brackets: list[list[str | Linear]] = [[]]
    for each in symbols:
        if each == "(":
            open_brackets.append([])
        elif each == ")" and len(open_brackets) > 1:
            inner = open_brackets.pop()
            open_brackets[-1].append(_without_brackets(inner, symbols))
        else:
            open_brackets[-1].append(each)
    if len(open_brackets) > 1:
        raise _refuse(symbols, "has a bracket that is not closed")
    return _without_brackets(open_brackets[0], symbols)


def _without_brackets(items: list[str | Linear], symbols: Symbols) -> Linear:
    """Return the value of operands with operators between them, products first; an operand may have a minus."""
    total = factor = term = term_factor = 0
    operator, sign = "+", 1
    expects_operand = True
    for item in items:
        if not expects_operand:
            if item not in ("+", "-", "*"):
                raise _refuse(symbols, "is not an expression")
            operator, sign, expects_operand = item, 1, True
        elif item == "-":
            sign = -sign
        elif (operand := _operand(item)) is None:
            raise _refuse(symbols, "is not an expression")
        else:
            value, value_factor, expects_operand = sign * operand[0], sign * operand[1], False
            if operator == "*":
                term, term_factor = term * value, term * value_factor + term_factor * value
            else:
                total, factor = total + term, factor + term_factor
                term, term_factor = (value, value_factor) if operator == "+" else (-value, -value_factor)
    if expects_operand:
        raise _refuse(symbols, "is not an expression")
    return (total + term) % MODULUS, (factor + term_factor) % MODULUS


def _operand(item: str | Linear) -> Linear | None:
    if isinstance(item, tuple):
        return item
    return (0, 1) if item == "x" else (int(item), 0) if item in DIGITS else None


def _draw_missing(length: int, rng: Random) -> list[str]:
    """Draw bits twice, with one of them missing."""
    symbols = rng.choices(BITS, k=length // 2) * 2
    symbols[rng.randrange(length)] = MISSING
    return symbols


def _twin(symbols: Symbols) -> list[list[int]]:
    """Return the position of the bit that the missing one repeats."""
    half = len(symbols) // 2
    if len(symbols) % 2 or symbols.count(MISSING) != 1:
        raise _refuse(symbols, f"must be bits twice, with one of them replaced by {MISSING}")
    twin = (symbols.index(MISSING) + half) % len(symbols)
    if any(MISSING not in pair and len(set(pair)) == 2 for pair in zip(symbols[:half], symbols[half:], strict=True)):
        raise _refuse(symbols, "must have the same bits in its two halves")
    return [[twin]]


# --- answers of several symbols -----------------------------------------------------------------------------------


def _draw_stack(length: int, rng: Random) -> list[str]:
    """Draw a stack and actions that leave something on it."""
    while True:
        size = rng.randrange(1, length) if length > 1 else 1
        symbols = rng.choices(BITS, k=size) + rng.choices(ACTIONS, k=length - size)
        if _stack(symbols):
            return symbols


def _stack(symbols: Symbols) -> list[str]:
    stack: list[str] = []
    for before, each in pairwise(["0", *symbols]):
        if each in BITS and before in ACTIONS:
            raise _refuse(symbols, "must have its stack before its actions")
        if each == "pop":
            del stack[-1:]
        else:
            stack.append(each[-1])
    return stack[::-1]


def _stack_left(symbols: Symbols) -> list[str]:
    """Return the stack after the actions, from its top."""
    if stack := _stack(symbols):
        return stack
    raise _refuse(symbols, "leaves an empty stack, which has no symbols to write")


def _numbers_with(operator: str) -> Callable[[int, Random], list[str]]:
    def draw(length: int, rng: Random) -> list[str]:
        """Draw two numbers of at least 1 with an operator between them, their least significant bit first."""
        first = rng.randrange(1, length - 1)
        one, other = (f"{rng.randrange(1, 2**size):0{size}b}"[::-1] for size in (first, length - 1 - first))
        return [*one, operator, *other]

    return draw


def _two_numbers(operator: str, compute: Callable[[int, int], int]) -> Callable[[Symbols], list[str]]:
    def answer(symbols: Symbols) -> list[str]:
        """Return the result, its least significant bit first."""
        one, _, other = "".join(symbols).partition(operator)
        if not (one and other) or operator in other:
            raise _refuse(symbols, f"must be two numbers with one {operator} between them")
        return list(f"{compute(int(one[::-1], 2), int(other[::-1], 2)):b}"[::-1])

    return answer


def _draw_number(length: int, rng: Random) -> list[str]:
    return list(f"{rng.randrange(1, 2**length):0{length}b}")


def _sqrt(symbols: Symbols) -> list[str]:
    """Return the square root, rounded down, in half as many bits; the most significant bit is first."""
    return list(f"{isqrt(int(''.join(symbols), 2)):0{(len(symbols) + 1) // 2}b}")


# --- answers of the input's own symbols ---------------------------------------------------------------------------


def _rearranged(
    symbols: tuple[str, ...],
    positions: Callable[[Symbols], list[list[int]]],
    *,
    draw: Callable[[int, Random], list[str]] | None = None,
    extra: tuple[str, ...] = (),
    shortest: int = 1,
    step: int = 1,
) -> Language:
    """Return a language whose answers are symbols of the input, at the first of the ``positions``.

    Args:
        extra: symbols of inputs that no answer has.
    """

    def answer(source: Symbols) -> list[str]:
        return [source[first] for first, *_ in positions(source)]

    return Language((*symbols, *extra), symbols, draw or _any_of(symbols), answer, positions, shortest, step)


def _each(positions: Callable[[int], Sequence[int]]) -> Callable[[Symbols], list[list[int]]]:
    return lambda symbols: [[position] for position in positions(len(symbols))]


def _sorted(symbols: Symbols) -> list[list[int]]:
    """Return, for each symbol in order, the positions of all equal ones."""
    return [[at for at, other in enumerate(symbols) if other == each] for each in sorted(symbols)]


EXPRESSION = (*DIGITS, "+", "-", "(", ")")
LANGUAGES = {
    "even-pairs": Language(BITS, PARITY, _any_of(BITS), _even_pairs),
    "parity-check": Language(BITS, PARITY, _any_of(BITS), _parity),
    "cycle-navigation": Language(tuple(MOVES), DIGITS, _any_of(tuple(MOVES)), _cycle),
    "modular-arithmetic": Language((*DIGITS, "+", "-", "*"), DIGITS, _draw_arithmetic, _arithmetic, step=2),
    "stack-manipulation": Language((*BITS, *ACTIONS), BITS, _draw_stack, _stack_left),
    "reverse-string": _rearranged(BITS, _each(lambda size: range(size)[::-1])),
    "brackets-arithmetic": Language(EXPRESSION, DIGITS, _draw_brackets, _arithmetic),
    "solve-equation": Language((*EXPRESSION, "x", "="), DIGITS, _draw_equation, _solve, shortest=3),
    "duplicate-string": _rearranged(BITS, _each(lambda size: [*range(size)] * 2)),
    "missing-duplicate": _rearranged(BITS, _twin, draw=_draw_missing, extra=(MISSING,), shortest=2, step=2),
    "odds-first": _rearranged(BITS, _each(lambda size: [*range(0, size, 2), *range(1, size, 2)])),
    "binary-addition": Language((*BITS, "+"), BITS, _numbers_with("+"), _two_numbers("+", int.__add__), shortest=3),
    "binary-multiplication": Language(
        (*BITS, "*"), BITS, _numbers_with("*"), _two_numbers("*", int.__mul__), shortest=3
    ),
    "compute-sqrt": Language(BITS, BITS, _draw_number, _sqrt),
    "bucket-sort": _rearranged(DIGITS, _sorted),
}
