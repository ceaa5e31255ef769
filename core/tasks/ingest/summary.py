"""Summarize imported pairs for the user: a table of facts, histograms of lengths, the first pairs and problems."""

from collections import Counter

from core.tasks.ingest.pairs import IngestResult

_BARS = 12
_LISTED_TOKENS = 40


def summary_facts(result: IngestResult) -> list[tuple[str, str]]:
    """Return statistics of the whole data set as (name, value)."""
    facts = [("pairs", f"{result.pairs:,}"), ("different sources", f"{result.sources:,}")]
    if result.test_pairs is not None:
        facts.append(("test pairs", f"{result.test_pairs:,}, from the test file"))
    if result.several:
        facts.append(("sources with several targets", f"{result.several:,}; each target counts as correct"))
    facts.append(("duplicate pairs", f"{result.duplicates:,} rows, skipped" if result.duplicates else "none"))
    if result.test_pairs is not None:
        overlaps = f"{result.overlaps:,} pairs, removed from training" if result.overlaps else "none"
        facts.append(("sources also in the test file", overlaps))
    for kind, count in result.skipped.most_common():
        facts.append((f"skipped: {kind}", f"{count:,} row{'s' if count > 1 else ''}"))
    for side, kind, tokens in (
        ("source", result.kinds[0], result.source_tokens),
        ("target", result.kinds[1], result.target_tokens),
    ):
        facts.append((f"{side} vocabulary", f"{len(tokens):,} {kind}s: {_list_tokens(tokens)}"))
    return facts


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
    lines = [f"{name:30} {value}" for name, value in summary_facts(result)]
    for side, lengths in (("source", result.source_lengths), ("target", result.target_lengths)):
        lines.append(f"\ntokens in the {side}")
        bars = histogram(lengths)
        largest = max(count for _, count in bars)
        lines += [f"  {label:>9} {count:9,} {'█' * round(30 * count / largest)}".rstrip() for label, count in bars]
    lines.append("\nfirst pairs")
    lines += [f"  {source}  →  {target}" for source, target in result.first_pairs]
    if result.problems:
        lines.append(f"\nskipped rows: {result.skipped.total():,}, the first:")
        lines += [f"  {problem}" for problem in result.problems]
    return lines


def _list_tokens(tokens: Counter[str]) -> str:
    listed = " ".join(token.replace(" ", "␣") for token, _ in tokens.most_common(_LISTED_TOKENS))
    return listed if len(tokens) <= _LISTED_TOKENS else f"{listed} …"
