"""Lessons on attention and on optional bugs, with a doctor that finds the bugs."""
