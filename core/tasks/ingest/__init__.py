"""Import the user's own pairs: read files of several formats, validate every row, and make a preset for them."""

from core.tasks.ingest.columns import ROLES, Columns, parse_columns, set_name
from core.tasks.ingest.formats import FORMATS, FileFormat, UnknownFormatError, format_of, is_json
from core.tasks.ingest.lines import Row
from core.tasks.ingest.pairs import IngestResult, Kinds, SkippedRow, check_pairs_file, ingest_pairs
from core.tasks.ingest.preparing import HeldOutFile, PairFiles, prepare_preset, preset_name_for
from core.tasks.ingest.reading import Reading, read_pairs, reading_of
from core.tasks.ingest.recipes import preset_for
from core.tasks.ingest.staging import StagingArea
from core.tasks.ingest.summary import histogram, other_readings, skipped_share, summary_facts, summary_lines

__all__ = [
    "FORMATS",
    "ROLES",
    "Columns",
    "FileFormat",
    "HeldOutFile",
    "IngestResult",
    "Kinds",
    "PairFiles",
    "Reading",
    "Row",
    "SkippedRow",
    "StagingArea",
    "UnknownFormatError",
    "check_pairs_file",
    "format_of",
    "histogram",
    "ingest_pairs",
    "is_json",
    "other_readings",
    "parse_columns",
    "prepare_preset",
    "preset_for",
    "preset_name_for",
    "read_pairs",
    "reading_of",
    "set_name",
    "skipped_share",
    "summary_facts",
    "summary_lines",
]
