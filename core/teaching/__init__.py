"""Lessons on attention, and on bugs that can be switched on, with a doctor that finds them."""
