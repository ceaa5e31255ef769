"""Names of attention heads: block, layer and head, such as ``cross.2.1``."""

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from core.storage.errors import InputError

Block = Literal["encoder", "decoder", "cross"]
BLOCKS: tuple[Block, ...] = get_args(Block)


@dataclass(frozen=True)
class Head:
    """One attention head; layer and head are numbered from 1. As text it is ``cross.2.1``."""

    block: Block
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.block}.{self.layer}.{self.head}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Read the name of a head; InputError if it is not one."""
        match = re.fullmatch(rf"({'|'.join(BLOCKS)})\.([1-9][0-9]{{0,3}})\.([1-9][0-9]{{0,3}})", text.strip())
        if not match:
            raise InputError(
                f"head={text!r:.60} is not a head: write block.layer.head, such as cross.2.1, numbered from 1; "
                f"blocks are {', '.join(BLOCKS)}"
            )
        return cls(cast(Block, match[1]), int(match[2]), int(match[3]))
