"""A typed source as the ids that the model reads."""

import torch

from core.generation.reading import read_input
from core.models import Seq2Seq
from core.storage.errors import InputError
from core.tasks import Task
from core.text.vocab import BOS_ID, EOS_ID


def encode_source(model: Seq2Seq, task: Task, text: str, *, room: int = 0) -> torch.Tensor:
    """Return the ids (1, S) int64 of a typed source, from BOS to EOS.

    Args:
        room: number of additional positions that the caller needs, such as for PAD.

    Raises:
        InputError: the text is not valid for the task, or too long for the model.
    """
    ids = read_input(model, task, text).ids
    if len(ids) + 2 + room > model.max_seq_len:
        raise InputError(f"input has {len(ids)} tokens; here at most {model.max_seq_len - 2 - room} can be read")
    return torch.tensor([[BOS_ID, *ids, EOS_ID]])
