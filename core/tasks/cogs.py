"""COGS, compositional generalization: English sentences and their logical forms.

``A dog smiled .`` becomes ``dog ( x _ 1 ) AND smile . agent ( x _ 2 , x _ 1 )``: a variable has the number of the word
that names it. Kim & Linzen 2020, https://arxiv.org/abs/2010.05465. ``core.tasks.cogs_grammar`` draws the
sentences.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from random import Random

import torch

from core.config.suites import COGS_TRAINING_WORDS, CogsConfig
from core.storage.errors import InputError
from core.tasks import cogs_grammar as grammar
from core.tasks.cogs_grammar import Pattern
from core.tasks.pairs import SPLITS, PairTable, PairTask, RaggedRows, TableRows, TestSets, source_key
from core.tasks.task import Breakdown, Split
from core.text.tokenizers import PlainTokenizer
from core.text.validation import quote
from core.text.vocab import Vocab

DRAWN = {"train": 24_000, "validation": 3_000, "test": 3_000}  # of the training distribution; the official sizes
PER_SET = {"test": 1_000, "validation": 100}  # of each generalization set
DETERMINERS, PREPOSITIONS = ("a", "the"), tuple(grammar.PLACES)
ROLES = ("agent", "theme", "recipient", "ccomp", "xcomp", "nmod")
Symbol = tuple[str, int | None]  # a token of a logical form, and the position of the word that names it, if one does


def _shown(kind: str) -> set[str]:
    """Return the words of a kind that generalization is tested on."""
    return {word for word, its in grammar.SHOWN.items() if its == kind}


def _kinds() -> dict[str, frozenset[str]]:
    """Return the lemmas of each kind of verb, those that generalization is tested on included."""
    omitted = {*grammar.OBJECT_OMITTED} | _shown("object omitted")
    unaccusative = {*grammar.UNACCUSATIVE} | _shown("unaccusative")
    kinds = {
        "agent": {*grammar.UNERGATIVE} | _shown("unergative") | omitted,
        "unaccusative": unaccusative,
        "transitive": {*grammar.TRANSITIVE} | _shown("transitive") | omitted | unaccusative,
        "dative": {*grammar.DATIVE} | _shown("dative"),
        "clause": {*grammar.CLAUSE},
        "control": {*grammar.CONTROL},
        "infinitive": {*grammar.INFINITIVES, "crawl"},
    }
    return {kind: frozenset(lemmas) for kind, lemmas in kinds.items()}


KINDS = _kinds()
LEMMAS = sorted(frozenset.union(*KINDS.values()))
PAST, PARTICIPLE = ({form(lemma): lemma for lemma in LEMMAS} for form in (grammar.past, grammar.participle))
NAMES = frozenset([*grammar.NAMES, *_shown("name")])
NOUNS = frozenset(chain(_shown("animate"), grammar.ANIMATES, grammar.THINGS, *grammar.PLACES.values()))
EXAMPLES = (
    "A dog smiled .",
    "The girl gave a cake in the room to Emma .",
    "Liam hoped that a box was rolled by the cat .",
    "The shark wanted to crawl .",
    "Emma said that Noah liked that the boy believed that a rose was seen .",
)


class Cogs(PairTask):
    """Sentences as in training to validate and test on, and 21 generalization sets; see the preset's ``task`` section.

    A token of a logical form is aligned with the word that names it, the number of a variable with its word.
    """

    length_unit = "words in the sentence"

    def __init__(self, config: CogsConfig, pairs: Path | None = None) -> None:
        self.config = config
        vocab, symbol = _vocabulary(config.longest_source), PlainTokenizer("symbol")
        super().__init__(
            src_vocab=vocab,
            tgt_vocab=vocab,
            tokenizers=(symbol, symbol),
            lengths=(1, COGS_TRAINING_WORDS),
            examples=EXAMPLES,
        )

    @property
    def table(self) -> PairTable:
        """All pairs, those of the generalization sets included."""
        return _table(self.config)

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        return "sentences as in training, each once"

    def all_pairs(self, split: Split) -> TableRows:
        """Return all pairs of a split; ``breakdown`` has the test pairs of the generalization sets."""
        table, rows = self.table, self.table.rows(split)
        if table.sets and split == "test":
            rows = rows[table.sets.of[rows] < 0]
        # The deepest sentences of the table would make every batch several times as wide.
        widths = tuple(int(side.lengths[rows].max()) for side in (table.src, table.tgt))
        return TableRows(table, rows, widths=widths)

    def breakdown(self, count: int, *, generator: torch.Generator) -> Breakdown | None:
        """Draw pairs of each generalization set, ``count`` of all of them together; see ``Task.breakdown``."""
        found = super().breakdown(count, generator=generator)
        return found and Breakdown("generalization", "what training does not show", found.pairs, found.groups)

    def tokenize(self, text: str) -> list[str]:
        """Split a sentence into words; InputError if the grammar does not have it.

        The full stop and the capital of the first determiner may be missing.
        """
        words = super().tokenize(text.replace(".", " . "))
        if len(words) > 1:
            words[0] = words[0].capitalize() if words[0] in DETERMINERS else words[0]
            words += [] if words[-1] == "." else ["."]
        if len(words) > (longest := self.config.longest_source):
            raise InputError(
                f"input={quote(text)} has {len(words)} words with its full stop; the longest has {longest}"
            )
        logical_form(words)
        return words

    def answer(self, symbols: Sequence[str]) -> list[str]:
        """Return the logical form of a sentence."""
        return [token for token, _ in logical_form(symbols)]

    def references(self, symbols: Sequence[str]) -> list[list[str]]:
        """Return the logical form, which is known of every sentence."""
        return [self.answer(symbols)]

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        """Return, for each token, the position of the word that names it, if one does; see ``Task.gold_alignment``."""
        return [[] if position is None else [position] for _, position in logical_form(symbols)]


def logical_form(words: Sequence[str]) -> list[Symbol]:
    """Return the logical form of a sentence with its full stop, or of a word alone.

    Definite nouns come first; then, in the order of the words, what each noun and verb says.

    Raises:
        InputError: the grammar does not have the sentence.
    """
    return _alone(words[0]) if len(words) == 1 else _Reader(words).sentence()


def _alone(word: str) -> list[Symbol]:
    """Return the meaning of a word alone: a name, or a function of a noun or verb."""
    if word in NAMES:
        return [(word, 0)]
    if word in NOUNS:
        return _spelled(f"LAMBDA a . {word} ( a )", word)
    if word in KINDS["unaccusative"]:
        return _spelled(f"LAMBDA a . LAMBDA e . {word} . theme ( e , a )", word)
    if word in KINDS["transitive"]:
        return _spelled(f"LAMBDA a . LAMBDA b . LAMBDA e . {word} . agent ( e , b ) AND {word} . theme ( e , a )", word)
    if word in KINDS["agent"]:
        return _spelled(f"LAMBDA a . LAMBDA e . {word} . agent ( e , a )", word)
    raise InputError(f"input={quote(word)} is not a sentence of COGS, nor a noun, name or verb that it has alone")


def _spelled(form: str, word: str) -> list[Symbol]:
    return [(token, 0 if token == word else None) for token in form.split()]


class _Reader:
    """Reads a sentence from left to right and collects what its nouns and verbs say.

    Sorting by position orders it; of one noun or verb, what is read first comes first.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.at = words, 0
        self.definite: list[list[Symbol]] = []
        self.said: list[tuple[int, list[Symbol]]] = []  # with the position of the noun or verb

    def sentence(self) -> list[Symbol]:
        self._clause()
        if list(self.words[self.at :]) != ["."]:
            raise self._error("the end")
        said = [terms for _, terms in sorted(self.said, key=lambda each: each[0])]
        return [
            *chain.from_iterable([*terms, (";", None)] for terms in self.definite),
            *said[0],
            *chain.from_iterable([("AND", None), *terms] for terms in said[1:]),
        ]

    def _clause(self) -> int:
        """Read a clause; return the position of its verb."""
        subject = self._noun_phrase()
        if self._next() == "was":
            self.at += 1
            return self._passive(subject)
        at, lemma = self._verb(PAST)
        following = self._next()
        if following == ".":
            role = "theme" if lemma in KINDS["unaccusative"] else "agent"
            self._check(lemma in KINDS["unaccusative"] | KINDS["agent"])
            self._say(lemma, at, role, subject)
        elif following == "that" and lemma in KINDS["clause"]:
            self._say(lemma, at, "agent", subject)
            self.at += 1
            self._say(lemma, at, "ccomp", _variable(self._clause()))
        elif following == "to" and lemma in KINDS["control"]:
            self.at += 1
            inner, infinitive = self._verb({each: each for each in KINDS["infinitive"]})
            self._say(lemma, at, "agent", subject)
            self._say(lemma, at, "xcomp", _variable(inner))
            self._say(infinitive, inner, "agent", subject)
        elif lemma in KINDS["dative"]:
            self._say(lemma, at, "agent", subject)
            first = self._noun_phrase()
            if self._next() == "to":
                self.at += 1
                self._say(lemma, at, "theme", first)
                self._say(lemma, at, "recipient", self._noun_phrase())
            else:
                self._say(lemma, at, "recipient", first)
                self._say(lemma, at, "theme", self._noun_phrase())
        else:
            self._check(lemma in KINDS["transitive"])
            self._say(lemma, at, "agent", subject)
            self._say(lemma, at, "theme", self._noun_phrase())
        return at

    def _passive(self, subject: list[Symbol]) -> int:
        at, lemma = self._verb(PARTICIPLE)
        if lemma not in KINDS["dative"]:
            self._check(lemma in KINDS["transitive"])
            self._say(lemma, at, "theme", subject)
        elif self._next() == "to":
            self.at += 1
            self._say(lemma, at, "theme", subject)
            self._say(lemma, at, "recipient", self._noun_phrase())
        else:
            self._say(lemma, at, "recipient", subject)
            self._say(lemma, at, "theme", self._noun_phrase())
        if self._next() == "by":
            self.at += 1
            self._say(lemma, at, "agent", self._noun_phrase())
        return at

    def _noun_phrase(self) -> list[Symbol]:
        """Read a name, or a noun with its phrases; return the name or the variable."""
        word, at = self._next(), self.at
        if word in NAMES:
            self.at += 1
            return [(word, at)]
        determiner = word.lower() if at == 0 else word
        if determiner not in DETERMINERS:
            raise self._error("a, the or a name")
        noun, at = self._next(1), at + 1
        if noun not in NOUNS:
            self.at += 1
            raise self._error("a noun")
        noun = noun.lower()  # TV
        terms = [(noun, at), ("(", None), *_variable(at), (")", None)]
        if determiner == "the":
            self.definite.append([("*", None), *terms])
        else:
            self.said.append((at, terms))
        self.at += 2
        if (preposition := self._next()) in PREPOSITIONS:
            relation: list[Symbol] = [(noun, at), (".", None), ("nmod", self.at), (".", None), (preposition, self.at)]
            self.at += 1
            self.said.append((at, [*relation, *_arguments(at, self._noun_phrase())]))
        return _variable(at)

    def _verb(self, forms: dict[str, str]) -> tuple[int, str]:
        at = self.at
        if (lemma := forms.get(self._next())) is None:
            raise self._error("a verb")
        self.at += 1
        return at, lemma

    def _say(self, lemma: str, at: int, role: str, argument: list[Symbol]) -> None:
        self.said.append((at, [(lemma, at), (".", None), (role, None), *_arguments(at, argument)]))

    def _next(self, ahead: int = 0) -> str:
        return self.words[self.at + ahead] if self.at + ahead < len(self.words) else ""

    def _check(self, is_right: bool) -> None:
        if not is_right:
            self.at -= 1
            raise self._error("another verb")

    def _error(self, expected: str) -> InputError:
        found = quote(self._next()) if self._next() else "the end"
        return InputError(
            f"input={quote(' '.join(self.words))} is not a sentence of COGS: {found} is where {expected} should be"
        )


def _variable(at: int) -> list[Symbol]:
    return [("x", None), ("_", None), (str(at), at)]


def _arguments(at: int, second: list[Symbol]) -> list[Symbol]:
    return [("(", None), *_variable(at), (",", None), *second, (")", None)]


@cache
def _vocabulary(longest: int) -> Vocab:
    """Return the vocabulary of sentences and logical forms, in which the words of the longest sentence have numbers.

    It is one, because names and nouns are the same on both sides.
    """
    function_words = (*DETERMINERS, *(each.capitalize() for each in DETERMINERS), "was", "by", "to", "that", ".")
    signs = ("x", "_", "(", ")", ",", ";", "*", "AND", "LAMBDA", "b", "e")
    numbers = map(str, range(longest))
    words = {*NOUNS, *(noun.lower() for noun in NOUNS), *LEMMAS, *PAST, *PARTICIPLE}
    return Vocab((*function_words, *PREPOSITIONS, *signs, *ROLES, *numbers, *sorted(NAMES), *sorted(words)))


@lru_cache(2)
def _table(config: CogsConfig) -> PairTable:
    """Return the pairs of all splits, drawn once and the same for every run."""
    seen: set[tuple[str, ...]] = set()
    patterns_of = grammar.generalization(config.max_depth)
    sources: list[tuple[str, ...]] = []
    split: list[int] = []
    sets: list[int] = []

    def add(found: Iterable[tuple[str, ...]], of: str, number: int = -1) -> None:
        for words in found:
            sources.append(words)
            split.append(SPLITS.index(of))
            sets.append(number)

    for seed, pattern in enumerate(grammar.EXPOSURE):
        add(_distinct(pattern, 1, seen, _stream(f"exposure {seed}")), "train")
    add(((word,) for word in grammar.words_alone()), "train")
    drawn = _distinct(Pattern(), sum(DRAWN.values()), seen, _stream("sentences"))
    for of, count in DRAWN.items():
        part = [next(drawn) for _ in range(count)]
        if of != "validation" or config.validation == "in-distribution":
            add(part, of)
    for number, (name, patterns) in enumerate(patterns_of.items()):
        for seed, pattern in enumerate(patterns):
            found = _distinct(pattern, sum(PER_SET.values()) // len(patterns), seen, _stream(f"{name} {seed}"))
            for of, count in PER_SET.items():
                part = [next(found) for _ in range(count // len(patterns))]
                if of == "test" or config.validation == "generalization":
                    add(part, of, number)
    vocab = _vocabulary(config.longest_source)
    keys = torch.tensor([source_key(" ".join(words)) for words in sources])
    pairs = ((vocab.encode(words), vocab.encode([token for token, _ in logical_form(words)])) for words in sources)
    named = TestSets(tuple(patterns_of), torch.tensor(sets, dtype=torch.int8))
    return PairTable(*RaggedRows.from_pairs(pairs), keys, torch.tensor(split, dtype=torch.int8), named)


def _stream(name: str) -> Random:
    return Random(name)  # noqa: S311 - sentences to learn from


def _distinct(pattern: Pattern, count: int, seen: set[tuple[str, ...]], rng: Random) -> Iterator[tuple[str, ...]]:
    """Draw sentences that were not seen; they are seen from then on."""
    for words in grammar.sentences(pattern, rng):
        if words in seen:
            continue
        seen.add(words)
        yield words
        count -= 1
        if not count:
            return
