"""Everything that works without a browser: tasks, models, training, decoding, analysis, runs."""

__version__ = "0.2.0"
