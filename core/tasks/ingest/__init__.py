"""Import the user's own pairs: read files of several formats, validate every row, and make a preset for them."""

from core.tasks.ingest.formats import FORMATS, FileFormat, UnknownFormatError, format_of
from core.tasks.ingest.lines import Row
from core.tasks.ingest.pairs import IngestResult, Kinds, SkippedRow, check_pairs_file, ingest_pairs
from core.tasks.ingest.preparing import PairFiles, prepare_preset, preset_for, preset_name_for
from core.tasks.ingest.reading import read_pairs
from core.tasks.ingest.staging import StagingArea
from core.tasks.ingest.summary import histogram, summary_facts, summary_lines

__all__ = [
    "FORMATS",
    "FileFormat",
    "IngestResult",
    "Kinds",
    "PairFiles",
    "Row",
    "SkippedRow",
    "StagingArea",
    "UnknownFormatError",
    "check_pairs_file",
    "format_of",
    "histogram",
    "ingest_pairs",
    "prepare_preset",
    "preset_for",
    "preset_name_for",
    "read_pairs",
    "summary_facts",
    "summary_lines",
]
