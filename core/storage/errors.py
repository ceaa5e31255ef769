"""Exceptions with messages for the user."""


class LabError(ValueError):
    """A request cannot be fulfilled; the message names the field, the value and the rule.

    The page and the command line show the message. Any other exception is a bug and is not caught.

    Attributes:
        exit_code: of a command that ends with it: 2 for invalid input, 1 for a run that failed.
    """

    exit_code = 2


class InputError(LabError):
    """Invalid input text, ids that the model cannot read or too many of them, or a head that it does not have."""


class UnavailableError(InputError):
    """The request needs something that this run does not have, such as data; this is not a bug."""


class CheckpointError(LabError):
    """A checkpoint is missing, damaged or of another format; the message names the file and the reason."""
