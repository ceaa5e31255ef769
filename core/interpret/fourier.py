"""The Fourier spectrum of embeddings of the elements of a cyclic group, such as the numbers modulo a prime."""

import torch

from core.models.embeddings import Embedding
from core.models.seq2seq import Seq2Seq
from core.tasks import Task


def fourier_power(vectors: torch.Tensor) -> torch.Tensor:
    """Return the share of each frequency in the power of a sequence of vectors, (N // 2,) float, 0-1, of sum 1.

    The share of frequency k is Σ_d |F_kd|² + |F_(N-k)d|², once if k = N - k, divided by its sum over all k, where
    F_kd = Σ_n E_nd exp(-2πi kn / N) (Nanda et al. 2023, https://arxiv.org/abs/2301.05217, section 4.1). Frequency 0,
    the mean of all vectors, is left out. One circle has all its power at one frequency; random vectors have about the
    same power at every one. All are NaN if all vectors are equal.

    Args:
        vectors: (N, D) float, E, of the elements of a cyclic group in its order: n + 1 after n.
    """
    power = torch.fft.fft(vectors.double(), dim=0).abs().square().sum(dim=1)
    half = len(vectors) // 2
    folded = power[1 : half + 1] + power.flip(0)[:half]
    if len(vectors) % 2 == 0:
        folded[-1] /= 2
    return (folded / folded.sum()).float()


def number_embeddings(model: Seq2Seq, task: Task) -> torch.Tensor | None:
    """Return the source embeddings (N, D) float of a task's cyclic tokens in their order, without the factor √D.

    None if the task has no such tokens, or the model's embedding is not a table.
    """
    source = getattr(model, "src_embedding", None)
    embedding = getattr(model, "tgt_embedding", None) if source is None else source
    if not task.cyclic_tokens or not isinstance(embedding, Embedding):
        return None
    return embedding.tokens.weight.detach()[list(task.cyclic_tokens)]
