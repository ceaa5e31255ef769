"""The commands of SCAN and their actions: ``jump twice`` becomes ``I_JUMP I_JUMP``.

Lake & Baroni 2018, https://arxiv.org/abs/1711.00350, whose grammar (figure 6) and semantics (figure 7) these are.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path

import torch

from core.config.tasks import ScanConfig
from core.storage.errors import InputError
from core.tasks.pairs import SPLITS, PairTable, PairTask, RaggedRows, TestSets, hold_out, source_key, split_by_source
from core.text.tokenizers import PlainTokenizer
from core.text.validation import quote
from core.text.vocab import Vocab

VERBS = ("walk", "look", "run", "jump")
DIRECTIONS = ("left", "right")
WORDS = (*VERBS, "turn", *DIRECTIONS, "opposite", "around", "twice", "thrice", "and", "after")
ACTIONS = {each: f"I_{each.upper()}" for each in VERBS} | {each: f"I_TURN_{each.upper()}" for each in DIRECTIONS}
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.02  # of all commands, in the split simple; of the training commands, in all
PRIMITIVE_SHARE = 0.1  # of the training pairs that are the held-out primitive by itself, which is repeated
PRIMITIVES = {"add-jump": ("jump",), "add-turn-left": ("turn", "left")}
EXAMPLE = "jump twice and walk left"
Step = tuple[str, int]  # an action, and the position of the word that names it


class Scan(PairTask):
    """All 20,910 commands; see the preset's ``task`` section for the splits.

    An action is aligned with the word that names it: ``I_TURN_LEFT`` with ``left``.
    """

    length_unit = "words in the command"

    def __init__(self, config: ScanConfig, pairs: Path | None = None) -> None:
        self.config = config
        symbol = PlainTokenizer("symbol")
        super().__init__(
            src_vocab=Vocab(WORDS),
            tgt_vocab=Vocab(tuple(ACTIONS.values())),
            tokenizers=(symbol, symbol),
            lengths=(1, config.longest_source),
            examples=(
                "jump twice",
                "turn left and walk",
                "look around right",
                "run opposite left after walk thrice",
                "jump around left twice and jump around left thrice",
            ),
        )

    @property
    def table(self) -> PairTable:
        """All commands."""
        return _table(self.config)

    def tokenize(self, text: str) -> list[str]:
        """Split a command into words; InputError if the grammar does not have it."""
        words = super().tokenize(text.lower())
        steps(words)
        return words

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the actions of a command."""
        return [action for action, _ in steps(symbols)]

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return, for each action, the position of the word that names it; see ``Task.gold_alignment``."""
        return [[position] for _, position in steps(symbols)]


def steps(words: Sequence[str]) -> list[Step]:
    """Return the actions of a command, in their order.

    Raises:
        InputError: the grammar does not have the command.
    """
    for joint in ("and", "after"):
        if joint in words:
            at = words.index(joint)
            first, second = _sentence(words, 0, at), _sentence(words, at + 1, len(words))
            return first + second if joint == "and" else second + first
    return _sentence(words, 0, len(words))


def _sentence(words: Sequence[str], start: int, end: int) -> list[Step]:
    times = {"twice": 2, "thrice": 3}.get(words[end - 1], 0) if end > start else 0
    return _phrase(words, start, end - 1) * times if times else _phrase(words, start, end)


def _phrase(words: Sequence[str], start: int, end: int) -> list[Step]:
    """Return the actions of a verb with its direction, if it has one."""
    verb, *rest = words[start:end] or ("",)
    does = [(ACTIONS[verb], start)] if verb in VERBS else []
    if not rest and does:
        return does
    if rest and rest[-1] in DIRECTIONS and (does or verb == "turn"):
        turn = [(ACTIONS[rest[-1]], end - 1)]
        match rest[:-1]:
            case []:
                return turn + does
            case ["opposite"]:
                return turn * 2 + does
            case ["around"]:
                return (turn + does) * 4
    wrong = "" if end - start == len(words) else f": {quote(' '.join(words[start:end]))}"
    raise InputError(f"input={quote(' '.join(words))} is not a command of SCAN{wrong}; one is {EXAMPLE!r}")


def commands() -> Iterator[tuple[str, ...]]:
    """Yield every command of the grammar."""
    directed = product((*VERBS, "turn"), ((), ("opposite",), ("around",)), DIRECTIONS)
    phrases = [*((verb,) for verb in VERBS), *((verb, *how, side) for verb, how, side in directed)]
    sentences = [phrase + times for phrase in phrases for times in ((), ("twice",), ("thrice",))]
    yield from sentences
    for first, joint, second in product(sentences, ("and", "after"), sentences):
        yield (*first, joint, *second)


@lru_cache(4)
def _table(config: ScanConfig) -> PairTable:
    """Return the commands of a split; the primitive of a split that adds one is repeated, as in the official files."""
    everything = list(commands())
    keys = torch.tensor([source_key(" ".join(each)) for each in everything])
    answers = [[action for action, _ in steps(each)] for each in everything]
    lengths = torch.tensor([len(each) for each in answers])
    primitive = PRIMITIVES.get(config.split, ())
    if config.split == "simple":
        is_test = split_by_source(keys, test=TEST_SHARE, validation=0, seed=0) == SPLITS.index("test")
    elif config.split == "length":
        is_test = lengths > config.max_training_actions
    else:
        is_test = torch.tensor([_combines(each, primitive) for each in everything])
    split = hold_out(keys, is_test, validation=VALIDATION_SHARE)
    rows = torch.arange(len(keys))
    if primitive:
        row = everything.index(primitive)
        split[row] = SPLITS.index("train")
        others = int((~is_test).sum()) - 1
        copies = round(others * PRIMITIVE_SHARE / (1 - PRIMITIVE_SHARE))
        rows = torch.cat([rows, torch.full((copies - 1,), row)])
    words, actions = Vocab(WORDS), Vocab(tuple(ACTIONS.values()))
    pairs = ((words.encode(everything[row]), actions.encode(answers[row])) for row in rows.tolist())
    sets = _by_length(lengths, is_test) if config.split == "length" else None
    return PairTable(*RaggedRows.from_pairs(pairs), keys[rows], split[rows], sets)


def _by_length(lengths: torch.Tensor, is_test: torch.Tensor) -> TestSets:
    """Return a test set for each number of actions of the held-out commands."""
    found = lengths[is_test].unique()
    of = torch.where(is_test, torch.searchsorted(found, lengths), -1).to(torch.int8)
    return TestSets(tuple(f"{length} actions" for length in found.tolist()), of)


def _combines(command: tuple[str, ...], primitive: tuple[str, ...]) -> bool:
    """Whether a command has a primitive among others."""
    size = len(primitive)
    return command != primitive and any(command[at : at + size] == primitive for at in range(len(command)))
