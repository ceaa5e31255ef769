"""Translation of English sentences to German, learned from the LibreOffice Help."""

import lzma
from collections.abc import Sequence
from functools import cache, cached_property, lru_cache
from itertools import compress
from pathlib import Path

import torch

from core.config.tasks import SUBWORDS, TranslationConfig
from core.tasks.pairs import SPLITS, PairTable, PairTask
from core.tasks.subword_pairs import TextPair, encode_pairs, tokenizers_of, vocabularies_of
from core.text.subwords import SubwordTokenizers

CORPUS = Path(__file__).parent / "texts" / "libreoffice-help-en-de.tsv.xz"
_EXAMPLES = (
    "Opens a dialog where you can select a color.",
    "Click OK to save the document.",
    "You can use the arrow keys to move the cursor to another cell.",
    "Specifies whether to print the comments in your document.",
)


class Translation(PairTask):
    """Paragraphs of one to forty English words and their German translations, by volunteers of the LibreOffice project.

    The pairs are split by page of the Help, so that a test sentence has no near-duplicate beside it on its page in the
    training data; test and validation sources that also occur on a training page are left out. ``texts/README.md`` says
    how the corpus is made.

    Args:
        config: the preset's ``task`` section.
        pairs: the pairs file of a run, beside which its tokenizers are; None learns them.

    Raises:
        SubwordError: the run's tokenizers are damaged, or not those of the preset.
    """

    length_unit = "pieces in the source"
    bleu_tokenizer = "13a"

    def __init__(self, config: TranslationConfig, pairs: Path | None = None) -> None:
        saved = None if pairs is None else pairs.with_name(SUBWORDS)
        self.pairs_file, self.subwords = pairs, _tokenizers(config, saved, _version(saved))
        src_vocab, tgt_vocab = vocabularies_of(self.subwords)
        super().__init__(
            src_vocab=src_vocab,
            tgt_vocab=tgt_vocab,
            tokenizers=self.subwords.sides,
            lengths=(1, config.max_length),
            examples=_EXAMPLES,
        )
        self._config = config

    @cached_property
    def table(self) -> PairTable:
        """The pairs, in the order of the corpus."""
        return _table(self._config, self.subwords)

    def references(self, symbols: Sequence[str]) -> list[list[str]]:
        """Return all answers to a source of the corpus; [] for other sources."""
        answers = _answers().get(self.source_text(symbols), [])
        return [self.tokenizers[1].tokenize(answer) for answer in answers]


@cache
def corpus() -> tuple[tuple[TextPair, ...], torch.Tensor]:
    """Return the pairs of the corpus and the split of each, an index into ``SPLITS``, (N,) int8."""
    with lzma.open(CORPUS, "rt", encoding="utf-8", newline="\n") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    split = [SPLITS.index(row[2]) if len(row) > 2 else 0 for row in rows]
    return tuple((row[0], row[1]) for row in rows), torch.tensor(split, dtype=torch.int8)


def _version(path: Path | None) -> tuple[int, int] | None:
    """Return size and modification time, so that a changed file is read again."""
    if path is None or not path.is_file():
        return None
    return path.stat().st_size, path.stat().st_mtime_ns


@cache
def _answers() -> dict[str, list[str]]:
    answers: dict[str, list[str]] = {}
    for source, answer in corpus()[0]:
        answers.setdefault(source, []).append(answer)
    return answers


@lru_cache(8)
def _tokenizers(config: TranslationConfig, saved: Path | None, version: tuple[int, int] | None) -> SubwordTokenizers:
    def training_pairs() -> list[TextPair]:
        pairs, split = corpus()
        return list(compress(pairs, (split == SPLITS.index("train")).tolist()))

    return tokenizers_of(saved if version else None, config, training_pairs)


@lru_cache(4)
def _table(config: TranslationConfig, tokenizers: SubwordTokenizers) -> PairTable:
    return encode_pairs(*corpus(), tokenizers, config)
