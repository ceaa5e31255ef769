"""Ids of PAD, BOS, EOS and UNK in a model of another program, by what its weights say about them."""

import torch

NUMBERINGS = ((0, 1, 2, -1), (1, 2, 3, 0), (1, 0, 2, 3))
"""PAD, BOS, EOS and UNK, -1 for none: most programs'; torchtext's tutorials'; fairseq's."""
_FIRST_IDS = 4  # special tokens have the first ids
_FAR = 2.5  # natural logarithms below the median: a tenth as probable


def rare_ids(bias: torch.Tensor | None) -> list[int]:
    """Return the first ids that a model has learned never to write, by its output's bias (V,) float.

    PAD is not counted in the loss, and BOS and most UNK are no targets: training lowers their biases.
    """
    if bias is None or len(bias) <= 2 * _FIRST_IDS:
        return []
    usual = bias.float().median()
    spread = (bias.float() - usual).abs().median()
    return (bias[:_FIRST_IDS].float() < usual - max(_FAR, 6 * spread.item())).nonzero().flatten().tolist()


def proposed_ids(table: torch.Tensor, bias: torch.Tensor | None) -> tuple[int, int, int, int]:
    """Return the ids of PAD, BOS, EOS and UNK (-1: none) that an embedding (V, D) and the output's bias suggest.

    The only row of zeros is PAD's, where an embedding has a ``padding_idx``. Without one, the tokens that are never
    written decide.
    """
    zeros = (table == 0).all(dim=1).nonzero().flatten().tolist()
    rare = set(rare_ids(bias))
    likely = [each for each in NUMBERINGS if rare == {each[0], each[1], *([each[3]] if each[3] >= 0 else [])}]
    fitting = [each for each in likely or NUMBERINGS if len(zeros) != 1 or each[0] == zeros[0]]
    return fitting[0] if fitting else NUMBERINGS[0]


def rare_end(bias: torch.Tensor, eos: int) -> str:
    """Return a note if a model has learned never to write its EOS, which cannot be; "" otherwise."""
    if eos not in (rare := rare_ids(bias)):
        return ""
    return (
        f"eos_id={eos} is a token that the model never writes: its output bias is {bias[eos].item():.1f}, and the "
        f"median {bias.float().median().item():.1f}; PAD, BOS and UNK should be among {', '.join(map(str, rare))}"
    )
