"""Guided alignment: one cross-attention head also learns the gold alignment of the training pairs.

Chen et al. 2016, "Guided Alignment Training for Topic-Aware Neural Machine Translation". The head is that of Garg et
al. 2019, "Jointly Learning to Align and Translate with Transformer Models": the first of the layer before the last.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from core.config.training import TrainingConfig
from core.models.hooks import hooks
from core.models.seq2seq import Seq2Seq
from core.models.transformer import Transformer
from core.storage.errors import InputError
from core.tasks import Batch, Task
from core.tasks.alignment import gold_alignment
from core.text.vocab import PAD_ID
from core.training.loss import LossFunction
from core.training.state import TrainingState

GUIDED_HEAD = 1
_LEAST_WEIGHT = 1e-6  # whose logarithm is finite


def guided_layer(num_layers: int) -> int:
    """Return the decoder layer with the guided head, from 1."""
    return max(1, num_layers - 1)


class AlignmentGuide:
    """The loss of a head's attention beside the gold alignment, over the parts of a batch.

    Args:
        model: a Transformer in training mode.
        task: gives the alignment of a pair; see ``Task.gold_alignment``.
    """

    def __init__(self, model: Seq2Seq, task: Task) -> None:
        layers = len(model.decoder_layers) if isinstance(model, Transformer) else 0
        self._task = task
        self._point = f"decoder_layers.{guided_layer(layers) - 1}.cross_attention.hook_pattern"
        self._pattern: torch.Tensor | None = None
        self._is_watching = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep the head's attention of the forward pass inside the block."""
        self._is_watching = True
        try:
            with hooks({self._point: self._keep}):
                yield
        finally:
            self._is_watching = False

    def _keep(self, pattern: torch.Tensor) -> None:
        if self._is_watching:  # not when a layer is computed again for its gradients
            self._pattern = pattern[:, GUIDED_HEAD - 1]

    def loss(self, batch: Batch) -> torch.Tensor:
        """Compute the loss of the kept attention, in nats per non-PAD token.

        At each step with gold source tokens, it is the negative log of the attention on them; other steps count 0.
        """
        assert self._pattern is not None, "a forward pass inside ``watching`` comes first"  # noqa: S101
        pattern, self._pattern = self._pattern.float(), None
        gold = gold_alignment(self._task, batch, batch.tgt_out, steps=batch.tgt_out.shape[1])
        mass = (pattern * gold).sum(dim=-1).clamp(min=_LEAST_WEIGHT)
        return -(mass.log() * gold.any(dim=-1)).sum() / (batch.tgt_out != PAD_ID).sum()


def guided_loss(state: TrainingState) -> LossFunction:
    """Return the loss function of a training, with the term of the guided alignment if its preset has one."""
    weight = state.preset.training.guided_alignment
    if not weight:
        return state.loss_function
    guide = AlignmentGuide(state.model, state.task)

    def loss(model: Seq2Seq, batch: Batch, config: TrainingConfig, **settings: Any) -> torch.Tensor:
        with guide.watching():
            of_tokens = state.loss_function(model, batch, config, **settings)
        return of_tokens + weight * guide.loss(batch)

    return loss


def check_alignments(state: TrainingState, sample: Batch) -> None:
    """Check that a training with a guided alignment has one to learn.

    Args:
        sample: training pairs.

    Raises:
        InputError: none of these pairs has a gold alignment.
    """
    weight = state.preset.training.guided_alignment
    if weight and not gold_alignment(state.task, sample, sample.tgt_out, steps=sample.tgt_out.shape[1]).any():
        raise InputError(
            f"training.guided_alignment={weight:g} must be 0: the training pairs have no gold alignment. Pairs of your "
            "own get one from a column of links, or by task.alignment=same-token"
        )
