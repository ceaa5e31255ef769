"""Lessons on attention and on optional bugs, a doctor that finds bugs, and milestones that check own code."""
