"""Check the blocks of a plugin when a model is built, so that no analysis of it fails or is wrong later."""

from collections.abc import Iterable
from functools import partial

import torch
from torch import nn

from core.config.sections import BlockKind, BlocksConfig
from core.models.hooks import hooks
from core.models.layers import FeedForward
from core.models.seq2seq import Seq2Seq
from core.storage.errors import InputError
from core.text.vocab import BOS_ID, EOS_ID

_POINTS: dict[BlockKind, tuple[str, ...]] = {
    "attention": ("hook_v", "hook_mask", "hook_pattern", "hook_z", "hook_out"),
    "feed_forward": ("hook_post", "hook_out"),
}
"""What attention maps, ablation, patching, attribution and the doctor read or replace."""


def check_hook_points(model: Seq2Seq, config: BlocksConfig) -> None:
    """Raise InputError if a block of a plugin does not call a hook point in a forward pass; the model is new."""
    modules: dict[BlockKind, Iterable[nn.Module]] = {
        "attention": model.attention.values(),
        "feed_forward": [each for each in model.modules() if isinstance(each, FeedForward)],
    }
    points = {
        getattr(module, point).name: (kind, point)
        for kind in config.own_blocks
        for module in modules.get(kind, ())
        for point in _POINTS[kind]
    }
    called: set[str] = set()
    tokens = torch.tensor([[BOS_ID, EOS_ID]], device=model.device)
    with torch.no_grad(), hooks({name: partial(_note, called, name) for name in points}):
        model.eval()(tokens, tokens)
    model.train()
    for name, (kind, point) in points.items():
        if name not in called:
            block = getattr(config, f"{kind}_block")
            raise InputError(
                f"model.{kind}_block={block!r} does not call {point}, as its base class does; "
                "attention maps, ablation, patching and the doctor need it"
            )


def _note(called: set[str], name: str, x: torch.Tensor) -> None:
    called.add(name)
