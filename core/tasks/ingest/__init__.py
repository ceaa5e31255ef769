"""Pairs that somebody brings: read from files of several kinds, checked row by row, looked at, and made a preset of."""

from core.tasks.ingest.intake import Intake, Skipped, check_kept, taken_in
from core.tasks.ingest.preparing import Brought, prepared, preset_of
from core.tasks.ingest.reading import KINDS, FileKind, Row, kind_of_file, read_pairs
from core.tasks.ingest.staging import Desk
from core.tasks.ingest.wording import facts_of, histogram, in_words

__all__ = [
    "KINDS",
    "Brought",
    "Desk",
    "FileKind",
    "Intake",
    "Row",
    "Skipped",
    "check_kept",
    "facts_of",
    "histogram",
    "in_words",
    "kind_of_file",
    "prepared",
    "preset_of",
    "read_pairs",
    "taken_in",
]
