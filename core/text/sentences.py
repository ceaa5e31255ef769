"""Split a text into sentences."""

import re

# A run of end marks with closing quotes or brackets, and the space after it; or a line break.
_BREAK = re.compile(r"(?<![.!?…:])(?P<marks>[.!?…:]+)[\"'”’“»)\]]*\s+|\n\s*")
_LAST_WORD = re.compile(r"[^\s(\[\"'„“”‘’«»]*\Z")
_LONGEST_WORD = 30  # characters before a period that are checked
_ABBREVIATIONS = (
    "mr mrs ms dr prof st vs cf approx dept est inc ltd jr sr hr fr str nr ca bzw vgl evtl ggf inkl exkl bsp tel sog "
    "zzgl abzgl mind max min jan feb mar apr aug sept sep okt oct nov dez dec"
)
_BEFORE_NUMBERS = "no nos p pp s vol fig figs abb art sec kap ch bd ver rev"
_LETTERS = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")  # an initial, or "e.g", "z.B"
_ORDINAL = re.compile(r"\d{1,2}")  # "am 3. Mai", "1. Choose a file"


def split_sentences(text: str) -> list[str]:
    """Split a text after ``. ! ? … :`` and at line breaks, by rules for English and German.

    There is no split before a lower-case letter, or after an abbreviation, an initial or an ordinal number. Ambiguous
    text is not split.

    Returns:
        The sentences, each with the white space after it, so that ``"".join(sentences) == text``.
    """
    sentences, start = [], 0
    for match in _BREAK.finditer(text):
        if match.end() == len(text) or not _ends_sentence(text, match):
            continue
        sentence = text[start : match.end()]
        if not sentence.isspace():
            sentences.append(sentence)
            start = match.end()
    return [*sentences, text[start:]] if start < len(text) else sentences


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends with a match of ``_BREAK``, which is not the end of the text."""
    following = text[match.end()]
    if "\n" in match[0]:
        return True
    if following.islower():
        return False
    if match["marks"] != "." or match[0].rstrip() != ".":
        return True
    before = _LAST_WORD.search(text, max(0, match.start() - _LONGEST_WORD), match.start())
    word = before[0].lower() if before else ""
    is_abbreviation = word in _ABBREVIATIONS.split() or (following.isdigit() and word in _BEFORE_NUMBERS.split())
    return not (is_abbreviation or _LETTERS.fullmatch(word) or _ORDINAL.fullmatch(word))
