"""Everything that works without a browser: tasks, models, training, decoding, analysis, runs."""
