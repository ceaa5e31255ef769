"""Exceptions whose message is meant for the user."""


class LabError(ValueError):
    """A request cannot be fulfilled; the message names the field, the value and the rule.

    The page and the command line show the message. Any other exception is a bug and is not caught.
    """


class InputError(LabError):
    """Invalid input text, an input too long for the model, or a head that the model does not have."""
