"""Vocabulary, tokenizers, and validation of input text."""
