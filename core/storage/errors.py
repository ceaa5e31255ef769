"""Errors that are for the person who asked, not for the log."""


class LabError(ValueError):
    """Something asked for cannot be done; the message names the field, the value and the rule.

    The page and the command line show it as it is. Every other exception is a bug and is let through.
    """


class InputError(LabError):
    """What was typed is not an input of the task, too long for the model, or about a head that it lacks."""
