"""Lessons on attention: texts with questions, and live figures of a trained model for any input."""

from core.teaching.attention_lessons.lesson import (
    ATTENTION_LESSON_FOLDER,
    AttentionLesson,
    attention_lessons,
    load_attention_lesson,
)

__all__ = ["ATTENTION_LESSON_FOLDER", "AttentionLesson", "attention_lessons", "load_attention_lesson"]
