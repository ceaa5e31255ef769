"""What was found in pairs that were taken in, in words and numbers."""

from collections import Counter

from core.tasks.ingest.intake import Intake

_BARS = 12
_LISTED_TOKENS = 40


def facts_of(found: Intake) -> list[tuple[str, str]]:
    """Return what there is to say of the data as a whole, as pairs of a name and its value."""
    facts = [("pairs", f"{found.pairs:,}"), ("different sources", f"{found.sources:,}")]
    if found.test_pairs is not None:
        facts.append(("of the pairs, for the test", f"{found.test_pairs:,}, from the test file"))
    if found.several:
        facts.append(("sources with several answers", f"{found.several:,}; each of them is right"))
    facts.append(("the same pair once more", f"{found.duplicates:,} rows, left out" if found.duplicates else "none"))
    if found.test_pairs is not None:
        overlaps = f"{found.overlaps:,} pairs, left out of training" if found.overlaps else "none"
        facts.append(("sources also in the test file", overlaps))
    for kind, count in found.skipped.most_common():
        facts.append((f"left out: {kind}", f"{count:,} row{'s' if count > 1 else ''}"))
    for side, kind, tokens in (
        ("source", found.kinds[0], found.source_tokens),
        ("answer", found.kinds[1], found.target_tokens),
    ):
        facts.append((f"{side} vocabulary", f"{len(tokens):,} {kind}s: {_listed(tokens)}"))
    return facts


def histogram(lengths: Counter[int]) -> list[tuple[str, int]]:
    """Return how many sequences there are of each length, or of each span of lengths where there are many."""
    low, high = min(lengths), max(lengths)
    step = (high - low) // _BARS + 1
    spans = [range(start, min(start + step, high + 1)) for start in range(low, high + 1, step)]
    return [
        (str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}", sum(lengths.get(length, 0) for length in span))
        for span in spans
    ]


def in_words(found: Intake) -> list[str]:
    """Return the lines that the command line prints."""
    lines = [f"{name:30} {value}" for name, value in facts_of(found)]
    for side, lengths in (("source", found.source_lengths), ("answer", found.target_lengths)):
        lines.append(f"\ntokens in the {side}")
        bars = histogram(lengths)
        most = max(count for _, count in bars)
        lines += [f"  {span:>9} {count:9,} {'█' * round(30 * count / most)}".rstrip() for span, count in bars]
    lines.append("\nthe first pairs")
    lines += [f"  {source}  →  {target}" for source, target in found.shown]
    if found.problems:
        lines.append(f"\nrows left out: {found.skipped.total():,}, the first of them")
        lines += [f"  {each}" for each in found.problems]
    return lines


def _listed(tokens: Counter[str]) -> str:
    shown = " ".join(each.replace(" ", "␣") for each, _ in tokens.most_common(_LISTED_TOKENS))
    return shown if len(tokens) <= _LISTED_TOKENS else f"{shown} …"
