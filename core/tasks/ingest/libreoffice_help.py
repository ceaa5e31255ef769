"""Make pairs of sentences from two languages of the LibreOffice Help, as its packages install it.

A paragraph or heading of the Help has the same id in every language, which aligns the two texts. The Help is licensed
under the MPL 2.0; Debian's packages are ``libreoffice-help-en-us``, ``libreoffice-help-de`` and so on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from core.storage.errors import InputError
from core.tasks.pairs import source_key
from core.text.subwords import WORD_START
from core.text.validation import quote

MAX_WORDS, MIN_HELD_OUT_WORDS = 40, 3
_PAGES_PER_SPLIT = 25  # one page in so many is for testing, another for validation
_BLOCKS = {"p", "h1", "h2", "h3", "h4", "h5", "h6"}


@dataclass(frozen=True)
class HelpPair:
    """A paragraph of the Help in two languages.

    Attributes:
        page: path of its page inside the Help, without suffix.
    """

    page: str
    source: str
    target: str


def read_help(folder: Path, languages: tuple[str, str]) -> Iterator[HelpPair]:
    """Yield the paragraphs that both languages have and that differ, each pair once, ordered by page.

    Args:
        folder: such as ``/usr/share/libreoffice/help``; it has one folder a language.
        languages: of source and target, such as ("en-US", "de").

    Raises:
        InputError: there is no Help in one of the languages.
    """
    folders = [folder / language / "text" for language in languages]
    for language, texts in zip(languages, folders, strict=True):
        if not texts.is_dir():
            package = f"libreoffice-help-{language.lower()}"
            raise InputError(f"language={quote(language)} has no pages in {folder}; Debian's {package} installs them")
    seen: set[tuple[str, str]] = set()
    for path in sorted(folders[0].rglob("*.html")):
        name = path.relative_to(folders[0])
        if not (folders[1] / name).is_file():
            continue
        sources, targets = _paragraphs(path), _paragraphs(folders[1] / name)
        for id_, source in sources.items():
            pair = source, targets.get(id_, source)
            if source != pair[1] and pair not in seen and WORD_START not in "".join(pair):
                seen.add(pair)
                yield HelpPair(name.with_suffix("").as_posix(), *pair)


def split_by_page(pairs: Iterable[HelpPair]) -> Iterator[tuple[HelpPair, str]]:
    """Yield pairs of at most ``MAX_WORDS`` source words with their split: "test", "validation", or "" for training.

    A page is in one split, so that no near-duplicate of a test sentence beside it is trained on. Held-out pairs have at
    least ``MIN_HELD_OUT_WORDS`` words, and no source that occurs in the training pairs or in another held-out split.
    """
    kept = [pair for pair in pairs if len(pair.source.split()) <= MAX_WORDS]
    split_of = {pair.page: _split_of_page(pair.page) for pair in kept}
    taken = {pair.source: "" for pair in kept if not split_of[pair.page]}
    for pair in kept:
        split = split_of[pair.page]
        if not split:
            yield pair, ""
        elif len(pair.source.split()) >= MIN_HELD_OUT_WORDS and taken.setdefault(pair.source, split) == split:
            yield pair, split


def _split_of_page(page: str) -> str:
    return {0: "test", 1: "validation"}.get(source_key(page) % _PAGES_PER_SPLIT, "")


def _paragraphs(path: Path) -> dict[str, str]:
    """Return the text of every paragraph and heading of a page that has an id."""
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page.texts


class _Page(HTMLParser):
    """Collects paragraphs by id. Of variants, such as those for one system, the last is taken, which is the default."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: dict[str, str] = {}
        self._id, self._tag = "", ""
        self._spans: list[str] = []  # "switch", "case" or "span": the open elements of the paragraph
        self._pieces: list[list[str]] = []  # of the paragraph, and of each open case inside it

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if not self._id:
            if tag in _BLOCKS and attributes.get("id"):
                self._id, self._tag = attributes["id"] or "", tag
                self._spans, self._pieces = [], [[]]
        elif tag == "span":
            is_case = bool(self._spans) and self._spans[-1] == "switch"
            is_switch = "switchinline" in (attributes.get("class") or "")
            self._spans.append("switch" if is_switch else "case" if is_case else "span")
            if is_switch or is_case:
                self._pieces.append([])
        elif tag in ("br", "img"):
            self._pieces[-1].append(" ")

    def handle_endtag(self, tag: str) -> None:
        if not self._id:
            return
        if tag == "span" and self._spans:
            kind = self._spans.pop()
            if kind == "case":
                text = "".join(self._pieces.pop())
                self._pieces[-1][:] = [text]  # replaces the case before it
            elif kind == "switch":
                text = "".join(self._pieces.pop())
                self._pieces[-1].append(text)
        elif tag == self._tag:
            text = " ".join("".join(self._pieces[0]).split())
            if text:
                self.texts.setdefault(self._id, text)
            self._id = ""

    def handle_data(self, data: str) -> None:
        if self._id and not (self._spans and self._spans[-1] == "switch"):
            self._pieces[-1].append(data)
