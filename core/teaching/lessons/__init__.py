"""Lessons about bugs: a question, a correct and a broken run, how to detect the bug, and how to fix it."""

from core.teaching.lessons.lesson import LESSON_FOLDER, RESULTS_FILE, SECTIONS, Lesson, lesson_names, load_lesson
from core.teaching.lessons.results import measure_pair

__all__ = ["LESSON_FOLDER", "RESULTS_FILE", "SECTIONS", "Lesson", "lesson_names", "load_lesson", "measure_pair"]
