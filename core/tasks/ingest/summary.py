"""Summarize imported pairs for the user: a table of facts, histograms of lengths, the first pairs and problems."""

import unicodedata
from collections import Counter

from core.config.counting import counted, percent
from core.tasks.ingest.choosing import MAX_UNKNOWN
from core.tasks.ingest.columns import Columns
from core.tasks.ingest.lines import NOT_UTF_8, SAVE_AS_UTF_8, Row
from core.tasks.ingest.pairs import MAX_TOKENS, IngestResult
from core.text.direction import isolated
from core.text.subwords import WORD_START
from core.text.tokenizers import KIND_NAMES, TokenKind

_BARS = 12
_LISTED_TOKENS = 40
MIN_COLUMNS = 3  # with which a file can be read in several ways; two can only be swapped
_WIDEST = 100  # characters of an example
_MARK = f"{WORD_START} is a space"


def summary_facts(result: IngestResult) -> list[tuple[str, str]]:
    """Return statistics of the whole data set as (name, value)."""
    facts = [*_reading_facts(result), ("pairs", f"{result.pairs:,}"), ("different sources", f"{result.sources:,}")]
    for split, count in result.held_out.items():
        facts.append((f"{split} pairs", f"{count:,}, marked as held out"))
    if result.sets:
        listed = ", ".join(f"{isolated(name)} ({count:,})" for name, count in result.sets.items())
        facts.append(("test sets", f"{listed}; each is measured by itself"))
    if result.aligned:
        facts.append(("pairs with an alignment", f"{result.aligned:,}, by which heads are scored"))
    if result.several:
        facts.append(("sources with several targets", f"{result.several:,}; each target counts as correct"))
    if result.source_case != "as-is":
        converted = ", into which held-out sources were converted" if result.other_case else ""
        facts.append(("case of the sources", f"{result.source_case}{converted}; what is typed is converted too"))
    facts.append(("duplicate pairs", f"{counted(result.duplicates, 'row')}, skipped" if result.duplicates else "none"))
    if result.held_out:
        overlaps = f"{counted(result.overlaps, 'pair')}, left out" if result.overlaps else "none"
        facts.append(("sources also in held-out pairs", overlaps))
    for kind, count in result.skipped.most_common():
        advice = f"; {SAVE_AS_UTF_8}" if kind == NOT_UTF_8 else ""
        facts.append((f"skipped: {kind}", f"{counted(count, 'row')}{advice}"))
    if result.too_long:
        facts.append((f"longer than {MAX_TOKENS} subwords", f"{counted(result.too_long, 'pair')}, left out"))
    return facts + _token_facts(result)


def skipped_share(result: IngestResult) -> str:
    """Return a sentence that says how many rows cannot be used, if there are any; "" for none."""
    skipped = result.skipped.total()
    if not skipped:
        return ""
    total = skipped + result.pairs + result.duplicates + result.overlaps
    kinds = result.skipped.most_common()
    why = kinds[0][0] if len(kinds) == 1 else ", ".join(f"{count:,} {kind}" for kind, count in kinds)
    return f"{skipped:,} of {total:,} rows ({percent(skipped / total)}) cannot be used: {why}."


def _reading_facts(result: IngestResult) -> list[tuple[str, str]]:
    """Return how a file with columns was read."""
    if result.reading is None:
        return []
    facts = [("read as", result.reading.columns.describe())]
    if header := result.reading.recognized.header:
        facts.append(("column names", f"line {header}: {', '.join(map(isolated, result.reading.columns.names))}"))
    return facts


def other_readings(result: IngestResult) -> list[tuple[Columns, tuple[Row, ...]]]:
    """Return how the file could be read instead, each with the first pairs of that reading.

    Empty if there is nothing to choose: two columns, of which the first is the source.
    """
    if result.reading is None or result.reading.recognized.width < MIN_COLUMNS:
        return []
    found = result.reading.recognized
    readings = zip(found.readings, found.examples, strict=True)
    return [(columns, rows) for columns, rows in readings if columns.roles != result.reading.columns.roles]


def _token_facts(result: IngestResult) -> list[tuple[str, str]]:
    """Return which tokens there are and why, their vocabularies, how many are unknown, and an example."""
    source, target = result.kinds
    facts = [("tokens", result.choice or _kinds_in_words(source, target))]
    if result.subwords and result.subwords.joint:
        both = f"{result.subwords.vocabulary_size:,} subwords at most, shared by source and target, {_MARK}"
        facts.append(("vocabulary", f"{both}: {_list_tokens(result.source_tokens + result.target_tokens)}"))
    else:
        most = f" at most, {_MARK}" if result.subwords else ""
        for side, kind, tokens in (
            ("source", source, result.source_tokens),
            ("target", target, result.target_tokens),
        ):
            size = result.subwords.vocabulary_size if result.subwords else len(tokens)
            facts.append((f"{side} vocabulary", f"{size:,} {KIND_NAMES[kind]}{most}: {_list_tokens(tokens)}"))
    facts.append(("unknown tokens in held-out pairs", _unknown(result)))
    if result.measured_every > 1:
        facts.append(("tokens were measured in", f"one of {result.measured_every} pairs"))
    facts.append(("first pair as tokens", "  →  ".join(isolated(_shortened(tokens)) for tokens in result.example)))
    return facts


def _kinds_in_words(source: TokenKind, target: TokenKind) -> str:
    return KIND_NAMES[source] if source == target else f"{KIND_NAMES[source]}, {KIND_NAMES[target]} in the target"


def _unknown(result: IngestResult) -> str:
    if result.subwords:
        return "0 %; rare characters are written as bytes"
    if not any(result.unknown):
        return "0 %"
    source, target = map(percent, result.unknown)
    advice = "; subwords would leave none" if max(result.unknown) > MAX_UNKNOWN else ""
    return f"{source} of the source's, {target} of the target's, read as UNK{advice}"


def histogram(lengths: Counter[int]) -> list[tuple[str, int]]:
    """Return (length, number of sequences) for each length, or for each range of lengths if there are many."""
    low, high = min(lengths), max(lengths)
    step = (high - low) // _BARS + 1
    ranges = [range(start, min(start + step, high + 1)) for start in range(low, high + 1, step)]
    return [
        (
            str(each[0]) if len(each) == 1 else f"{each[0]}–{each[-1]}",
            sum(lengths.get(length, 0) for length in each),
        )
        for each in ranges
    ]


def summary_lines(result: IngestResult) -> list[str]:
    """Return the lines that the command line prints."""
    lines = [f"{name:32} {value}" for name, value in summary_facts(result)]
    for side, lengths in (("source", result.source_lengths), ("target", result.target_lengths)):
        lines.append(f"\ntokens in the {side}")
        bars = histogram(lengths)
        largest = max(count for _, count in bars)
        lines += [f"  {label:>9} {count:9,} {'█' * round(30 * count / largest)}".rstrip() for label, count in bars]
    lines.append("\nfirst pairs")
    lines += [f"  {isolated(source)}  →  {isolated(target)}" for source, target in result.first_pairs]
    if others := other_readings(result):
        lines.append("\nother ways to read the columns")
        for columns, rows in others:
            example = f"{isolated(rows[0].source)}  →  {isolated(rows[0].target)}" if rows else "no pair"
            lines.append(f"  --columns {columns!s:28} {_cut(example)}")
    if result.problems:
        lines.append(f"\n{skipped_share(result)} The first:")
        lines += [f"  {problem}" for problem in result.problems]
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"


def _list_tokens(tokens: Counter[str]) -> str:
    listed = " ".join(_visible(token) for token, _ in tokens.most_common(_LISTED_TOKENS))
    return listed if len(tokens) <= _LISTED_TOKENS else f"{listed} …"


def _shortened(tokens: list[str]) -> str:
    shown = " ".join(map(_visible, tokens[:_LISTED_TOKENS]))
    return shown if len(tokens) <= _LISTED_TOKENS else f"{shown} …"


def _visible(token: str) -> str:
    """Return a token with signs for spaces, or the name of one invisible character, as on the page."""
    if len(token) == 1 and (unicodedata.category(token) in ("Cc", "Cf") or "\ufe00" <= token <= "\ufe0f"):
        return f"U+{ord(token):04X}"
    return token.replace(" ", "␣")
