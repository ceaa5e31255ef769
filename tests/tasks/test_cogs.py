"""COGS: logical forms counted in another way, splits that share no sentence, and sets that hold what they say."""

import re
from collections import Counter
from functools import cache

import pytest
import torch

from core.config.tasks import CogsConfig
from core.storage.errors import InputError
from core.tasks import build_task, cogs_grammar
from core.tasks.cogs import PARTICIPLE, PAST, Cogs, logical_form
from core.tasks.pairs import SPLITS

FUNCTION_WORDS = ("A", "The", "a", "the", "in", "on", "beside", "was", "to", "by", "that", ".")
PHRASE = r" (?:in|on|beside) (?:a|the) \w+"
THINGS = rf"(?:A|The|a|the) \w+(?:{PHRASE})*"
NOUN_PHRASE = rf"(?:{THINGS}|[A-Z][a-z]+)"
ABOVE = rf"(?:{NOUN_PHRASE} \w+ that )*"
WITH_OBJECT = rf"{ABOVE}{NOUN_PHRASE} \w+ (?:{NOUN_PHRASE} )?"  # up to the object
UNACCUSATIVE, OMITTED, UNERGATIVE = (
    f"(?:{'|'.join(map(cogs_grammar.past, lemmas))})"
    for lemmas in (cogs_grammar.UNACCUSATIVE, cogs_grammar.OBJECT_OMITTED, cogs_grammar.UNERGATIVE)
)
AFTER_SUBJECT = rf" \w+(?: {NOUN_PHRASE}(?: (?:to )?{NOUN_PHRASE})?| to \w+)? \."


@cache
def cogs(**options) -> Cogs:
    return build_task(CogsConfig(**options))


@cache
def sentences(task: Cogs, split: str, name: str = "") -> list[str]:
    """Return the sentences of a split that are of a generalization set, or of none."""
    table = task.table
    of = table.sets.names.index(name) if name else -1
    rows = (table.split == SPLITS.index(split)) & (table.sets.of == of)
    return [" ".join(task.src_vocab.decode(table.src.row(row))) for row in rows.nonzero().flatten().tolist()]


def by_counting(sentence: str) -> str:
    """Return the logical form by counting what stands in each clause, without reading from left to right."""
    words = sentence.split()
    nouns = {at: words[at].lower() for at in range(1, len(words)) if words[at - 1].lower() in ("a", "the")}
    names = {at: word for at, word in enumerate(words) if word[0].isupper() and word not in ("A", "The", "TV")}
    verbs = [at for at, word in enumerate(words) if not {at} & {*nouns, *names} and word not in FUNCTION_WORDS]
    phrases = [at for at, word in enumerate(words) if word in ("in", "on", "beside")]
    named = {at: names.get(at, f"x _ {at}") for at in sorted({*nouns, *names}) if at - 2 not in phrases}
    said = [(at, 0, f"{word} ( x _ {at} )") for at, word in nouns.items() if words[at - 1].lower() == "a"]
    said += [(at - 1, 1, f"{nouns[at - 1]} . nmod . {words[at]} ( x _ {at - 1} , x _ {at + 2} )") for at in phrases]
    ends = [at for at, word in enumerate(words) if word in ("that", ".")]
    for start, end in zip([0, *ends], ends, strict=False):
        verb, *infinitive = [at for at in verbs if start <= at < end]
        clause = [named[at] for at in named if start <= at < end]
        is_passive, before, after = words[verb - 1] == "was", [], words[verb:end]
        lemma = (PARTICIPLE if is_passive else PAST)[words[verb]]
        if is_passive:
            before = ["recipient", "theme"] if len(clause) - ("by" in after) == 2 else ["theme"]
            before = before[::-1] if "to" in after else before
            roles = [*before, "agent"]
        elif len(clause) == 1:
            is_theme = lemma in (*cogs_grammar.UNACCUSATIVE, "shatter") and words[end] == "." == words[verb + 1]
            roles = ["theme"] if is_theme else ["agent"]
        else:
            roles = (
                ["agent", "theme", "recipient"]
                if "to" in after or len(clause) == 2
                else ["agent", "recipient", "theme"]
            )
        said += [(verb, 2, f"{lemma} . {role} ( x _ {verb} , {it} )") for role, it in zip(roles, clause, strict=False)]
        said += [(verb, 3, f"{lemma} . xcomp ( x _ {verb} , x _ {at} )") for at in infinitive]
        said += [(at, 2, f"{words[at]} . agent ( x _ {at} , {clause[0]} )") for at in infinitive]
        said += [(verb, 3, f"{lemma} . ccomp ( x _ {verb} , x _ {at} )") for at in verbs if at > end][:1]
    definite = [f"* {word} ( x _ {at} ) ; " for at, word in sorted(nouns.items()) if words[at - 1].lower() == "the"]
    return "".join(definite) + " AND ".join(fact for _, _, fact in sorted(said, key=lambda each: each[:2]))


def test_sentences_have_the_logical_form_that_counting_gives_them():
    task = cogs()
    for row in range(0, len(task.table), 5):  # of every construction, hundreds
        words = task.src_vocab.decode(task.table.src.row(row))
        if len(words) > 1:
            found = " ".join(task.tgt_vocab.decode(task.table.tgt.row(row)))
            assert found == by_counting(" ".join(words)), words


@pytest.mark.parametrize(
    ("text", "expected"),  # of the paper, and of what training shows by itself
    [
        ("The shark ate .", "* shark ( x _ 1 ) ; eat . agent ( x _ 2 , x _ 1 )"),
        ("a cat smiled.", "cat ( x _ 1 ) AND smile . agent ( x _ 2 , x _ 1 )"),
        ("Paula", "Paula"),
        ("shark", "LAMBDA a . shark ( a )"),
        ("crawl", "LAMBDA a . LAMBDA e . crawl . agent ( e , a )"),
        ("touch", "LAMBDA a . LAMBDA b . LAMBDA e . touch . agent ( e , b ) AND touch . theme ( e , a )"),
        ("roll", "LAMBDA a . LAMBDA e . roll . theme ( e , a )"),
    ],
)
def test_typed_text_has_its_logical_form(text, expected):
    task = cogs()
    assert task.answer(task.tokenize(text)) == expected.split()


def test_splits_have_their_official_sizes_and_share_no_sentence():
    task = cogs()
    assert [len(task.all_pairs(split)) for split in SPLITS] == [24_155, 3_000, 3_000]
    assert len(task.table) == len(set(task.table.keys.tolist())) == 24_155 + 3_000 + 3_000 + 21 * 1_000
    sizes = {name: len(rows) for name, rows in task.table.rows_by_set().items()}
    assert sizes == dict.fromkeys(cogs_grammar.generalization(12), 1_000)
    other = cogs(validation="generalization")
    assert sentences(other, "train") == sentences(task, "train")
    validated = {sentence for name in sizes for sentence in sentences(other, "validation", name)}
    tested = [{sentence for name in sizes for sentence in sentences(each, "test", name)} for each in (task, other)]
    assert tested[0] == tested[1]
    assert len(validated) == len(other.all_pairs("validation")) == 2_100
    assert not validated & tested[0]


PATTERNS = {  # what every sentence of a set matches, and no training sentence
    "subject to object, common noun": rf"{WITH_OBJECT}(?:a|the) hedgehog",
    "subject to object, name": rf"{WITH_OBJECT}Lina",
    "object to subject, common noun": rf"{ABOVE}(?:A|The|a|the) cockroach{AFTER_SUBJECT}$",
    "object to subject, name": rf"{ABOVE}Charlie{AFTER_SUBJECT}$",
    "word alone to subject, common noun": rf"{ABOVE}(?:A|The|a|the) shark{AFTER_SUBJECT}$",
    "word alone to subject, name": rf"{ABOVE}Paula{AFTER_SUBJECT}$",
    "word alone to object, common noun": rf"{WITH_OBJECT}(?:a|the) shark",
    "word alone to object, name": rf"{WITH_OBJECT}Paula",
    "word alone to infinitive": rf"{ABOVE}{NOUN_PHRASE} \w+ to crawl \.$",
    "phrase of object to subject": rf"{ABOVE}(?:A|The|a|the) \w+(?:{PHRASE})+ (?!to|by|\.)\w+ ",
    "deeper clauses": rf"(?:{NOUN_PHRASE} \w+ that ){{3,12}}(?!.*that)",
    "deeper phrases": rf".*(?:{PHRASE}){{3,12}}(?: \.| to )",
    "active to passive": rf"{ABOVE}{THINGS} was blessed(?: by {NOUN_PHRASE})? \.$",
    "passive to active": rf"{ABOVE}{NOUN_PHRASE} squeezed {NOUN_PHRASE} \.$",
    "object omitted to transitive": rf"{ABOVE}{NOUN_PHRASE} baked {NOUN_PHRASE} \.$",
    "unaccusative to transitive": rf"{ABOVE}{NOUN_PHRASE} shattered {NOUN_PHRASE} \.$",
    "double object to prepositional dative": rf"{ABOVE}{NOUN_PHRASE} teleported {NOUN_PHRASE} to {NOUN_PHRASE} \.$",
    "prepositional dative to double object": rf"{ABOVE}{NOUN_PHRASE} shipped {NOUN_PHRASE} {NOUN_PHRASE} \.$",
    "agent to unaccusative subject": rf"{ABOVE}(?:A|The|a|the) cobra {UNACCUSATIVE} \.$",
    "unaccusative subject to subject of omitted object": rf"{ABOVE}(?:A|The|a|the) hippo {OMITTED} \.$",
    "unaccusative subject to unergative subject": rf"{ABOVE}(?:A|The|a|the) hippo {UNERGATIVE} \.$",
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_set_holds_what_its_name_says_and_training_does_not(name):
    task, pattern = cogs(), re.compile(PATTERNS[name])
    assert [each for each in sentences(task, "test", name) if not pattern.match(each)] == []
    assert [each for each in sentences(task, "train") if pattern.match(each)] == []


def test_training_shows_each_tested_word_once():
    words = Counter(word for sentence in sentences(cogs(), "train") for word in set(sentence.split()))
    tested = [
        "hedgehog",
        "cockroach",
        "cobra",
        "hippo",
        "Lina",
        "Charlie",
        "blessed",
        "squeezed",
        "baked",
        "shattered",
        "teleported",
        "shipped",
    ]
    assert [words[each] for each in tested] == [1] * 12
    alone = [each for each in sentences(cogs(), "train") if " " not in each]
    assert [words[each] for each in ("shark", "Paula", "crawl")] == [1, 1, 1]
    assert len(alone) == 143
    assert {"shark", "Paula", "crawl"} < {*alone}


@pytest.mark.parametrize("max_depth", [12, 3])  # the tables of the last two sections are kept
def test_deeper_sets_have_every_depth_alike_and_fit_the_section(max_depth):
    task = cogs(max_depth=max_depth)
    for name, pattern in (("deeper clauses", r" that "), ("deeper phrases", PHRASE)):
        depths = Counter(len(re.findall(pattern, each)) for each in sentences(task, "test", name))
        assert depths == dict.fromkeys(range(3, max_depth + 1), 1_000 // (max_depth - 2))
    assert max(len(re.findall(" that ", each)) for each in sentences(task, "train")) == 2
    assert max(len(re.findall(PHRASE, each)) for each in sentences(task, "train")) == 2
    config = CogsConfig(max_depth=max_depth)
    for side, longest in zip(task.table.widths, (config.longest_source, config.longest_answer), strict=True):
        assert 0.6 * longest <= side <= longest
    longest = [int(task.all_pairs(split).lengths()[:, 0].max()) - 2 for split in SPLITS]  # without BOS and EOS
    assert longest[0] == max(longest) == task.max_length


def test_generalization_is_a_breakdown_apart_from_the_test_split():
    task = cogs()
    found = task.breakdown(210, generator=torch.Generator().manual_seed(0))
    assert list(found.groups) == list(PATTERNS)
    assert {len(rows) for rows in found.groups.values()} == {10}
    tested = task.all_pairs("test")[torch.arange(3_000)]
    assert [tested.src.shape[1], tested.tgt.shape[1]] == tested.lengths().max(
        dim=0
    ).values.tolist()  # not of the deepest
    of_test = {" ".join(task.src_vocab.decode(row[row > 2].tolist())) for row in tested.src}
    assert of_test == {*sentences(task, "test")}


def test_tokens_are_aligned_with_the_words_that_name_them():
    words = ["The", "girl", "hoped", "that", "Emma", "ate", "a", "cake", "on", "the", "table", "."]
    aligned = [(token, words[at]) for token, at in logical_form(words) if at is not None]
    assert {token: word for token, word in aligned if token.isalpha()} == {
        "girl": "girl",
        "table": "table",
        "hope": "hoped",
        "eat": "ate",
        "Emma": "Emma",
        "cake": "cake",
        "nmod": "on",
        "on": "on",
    }
    assert [word for each, word in aligned if each == "7"] == ["cake"] * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("The girl", "'.' is where a verb should be"),
        ("girl smiled", "'girl' is where a, the or a name should be"),
        ("The smiled girl", "'smiled' is where a noun should be"),
        ("The girl girl ate", "'girl' is where a verb should be"),
        ("The girl liked", "'liked' is where another verb should be"),
        ("The girl smiled the cake", "'smiled' is where another verb should be"),
        ("The cake was smiled", "'smiled' is where another verb should be"),
        ("Emma smiled Emma", "'smiled' is where another verb should be"),
        ("Emma ate a cake Emma", "'Emma' is where the end should be"),
        ("Emma smiled . .", "'.' is where the end should be"),
        ("to", "is not a sentence of COGS"),
        ("Emma said that " * 16 + "Emma smiled", "has 51 words with its full stop; the longest has 48"),
        ("Emma smiled xyz", "'xyz' at position 3 is not one of"),
    ],
)
def test_what_the_grammar_does_not_have_is_refused(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        cogs(max_depth=3).tokenize(text)
