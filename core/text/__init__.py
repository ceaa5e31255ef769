"""Text: vocabularies, tokenizers, and validation of what a user types."""
