"""Lessons on bugs: a question, a pair of runs that differ in one bug, what gives it away, and the fix."""

from core.teaching.lessons.lesson import LESSON_FOLDER, RESULTS_FILE, SECTIONS, Lesson, lesson_names, load_lesson
from core.teaching.lessons.measuring import measure_pair

__all__ = ["LESSON_FOLDER", "RESULTS_FILE", "SECTIONS", "Lesson", "lesson_names", "load_lesson", "measure_pair"]
