"""The task of a model that was imported from another program: its tokenizers, and the pairs that the user brings."""

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path

import torch

from core.config import verified_pairs
from core.config.tasks import SUBWORDS, ImportedConfig
from core.storage.errors import InputError, UnavailableError
from core.tasks.pairs import SPLITS, PairTable, PairTask, TableRows, source_key
from core.tasks.subword_pairs import TextPair, encode_pairs, read_file, vocabularies_of
from core.tasks.task import Split
from core.text.pieces import join_pieces
from core.text.subwords import SubwordError, SubwordTokenizers

_EXAMPLES = 4


class Imported(PairTask):
    """Whatever the model was trained on elsewhere. Every split holds all pairs, since none was trained on here.

    Args:
        config: the preset's ``task`` section.
        pairs: the run's pairs file, beside which its tokenizers are; it need not exist if ``config.data`` is empty.

    Raises:
        ConfigError: the preset names pairs, and they are missing or others.
        SubwordError: the tokenizers are missing or damaged, or not those of the preset.
    """

    length_unit = "tokens in the source"

    def __init__(self, config: ImportedConfig, pairs: Path | None) -> None:
        if pairs is None or not pairs.with_name(SUBWORDS).is_file():
            raise SubwordError(f"task.family='imported' needs {SUBWORDS}, which only the folder of an imported run has")
        self._config, self.pairs_file, self.has_pairs = config, pairs, bool(config.data)
        stat = pairs.with_name(SUBWORDS).stat()
        self.subwords: SubwordTokenizers = _tokenizers(pairs.with_name(SUBWORDS), (stat.st_size, stat.st_mtime_ns))
        src_vocab, tgt_vocab = vocabularies_of(self.subwords)
        if config.joint_vocabulary != (src_vocab is tgt_vocab):
            raise SubwordError(f"{SUBWORDS} does not have task.joint_vocabulary={config.joint_vocabulary}")
        self._is_text = "words" not in {side.algorithm for side in self.subwords.sides}
        self.bleu_tokenizer = "13a" if self._is_text else None
        super().__init__(
            src_vocab=src_vocab,
            tgt_vocab=tgt_vocab,
            tokenizers=self.subwords.sides,
            lengths=(1, config.longest_source),
            examples=self._first_sources(),
        )

    @property
    def sampling(self) -> str:
        """The distribution of the inputs, in a few words."""
        return "the user's pairs, uniform; the model may have been trained on them elsewhere"

    @cached_property
    def table(self) -> PairTable:
        """The user's pairs.

        Raises:
            InputError: the run has none, or all are too long.
            ConfigError: the file is missing or holds other pairs.
        """
        pairs, config = list(self._pairs()), self._config
        split = torch.full((len(pairs),), SPLITS.index("test"), dtype=torch.int8)
        table = encode_pairs(pairs, split, self.subwords, config)
        if not len(table):
            limits = f"task.longest_source={config.longest_source}, task.longest_answer={config.longest_answer}"
            raise InputError(f"all {len(pairs):,} pairs are longer than {limits}")
        sources = (self.src_vocab.decode(table.src.row(row)) for row in range(len(table)))
        keys = [source_key(self.tokenizers[0].detokenize(source)) for source in sources]  # as typed ones are looked up
        return PairTable(table.src, table.tgt, torch.tensor(keys), table.split)

    def all_pairs(self, split: Split) -> TableRows:
        """Return all pairs, one of each source, whichever the split; see ``Task.all_pairs``."""
        return TableRows(self.table, self.table.rows("test"))

    def split_of(self, symbols: Sequence[str]) -> Split | None:
        """Return None: which pairs the model was trained on is not known."""
        return None

    def note(self, symbols: Sequence[str]) -> str:
        """Report a source that is not among the pairs, if there are any; the training's lengths are not known."""
        return super().note(symbols) if self.has_pairs else ""

    def produced_alignment(self, symbols: Sequence[str], produced: Sequence[str]) -> list[list[int]]:
        """Align the words that source and output share; numbers of tokens, which mean nothing, are not aligned."""
        return super().produced_alignment(symbols, produced) if self._is_text else [[] for _ in produced]

    def _pairs(self) -> Iterator[TextPair]:
        if not self._config.data:
            raise UnavailableError(
                "task.data='': this model was imported without pairs, which measuring it needs; import it again with a "
                "file of pairs (--pairs FILE)"
            )
        with verified_pairs(self._config, self.pairs_file).open(encoding="utf-8", newline="\n") as file:
            for line in file:
                source, answer, *_ = line.rstrip("\n").split("\t")
                yield source, answer

    def _first_sources(self) -> tuple[str, ...]:
        """Return sources of the pairs as examples; without pairs, a sentence or tokens of the vocabulary."""
        if self._config.data:
            return tuple(dict.fromkeys(source for source, _ in islice(self._pairs(), _EXAMPLES)))
        if self._is_text and self.subwords.source.algorithm != "characters":
            return ("This is a test.",)
        return (join_pieces(self.subwords.source.pieces[:5]),)


@lru_cache(4)
def _tokenizers(path: Path, version: tuple[int, int]) -> SubwordTokenizers:
    """Read tokenizers; another version (size and time) of a file is read again."""
    return read_file(path)
