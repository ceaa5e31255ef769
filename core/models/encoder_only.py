"""An encoder-only model: a token is scored at every source position, after bidirectional self-attention."""

import torch
from torch import nn

from core.config.sections import EncoderOnlyConfig
from core.models.embeddings import build_embedding, build_output
from core.models.hooks import name_hook_points, set_step
from core.models.layers import EncoderLayer, build_norm
from core.models.relative_bias import build_relative
from core.models.seq2seq import DecoderOutput, KeyValueCache, Memory, Seq2Seq


class EncoderOnly(Seq2Seq):
    """Encoder layers and an output projection, as in BERT (Devlin et al. 2019, section 3).

    There is no autoregression: ``encode`` does all the computation, and all positions are predicted independently of
    each other. Token t of the answer, counted from 0, is scored at source position t + 1, after BOS. The answer to a
    source with masked tokens is therefore the source with the masks filled in, and the answer ends at the source's EOS.
    ``decode`` only selects these positions: it uses the number of tokens in ``tgt_in``, not their ids.

    Args:
        config: sizes and options; see ``core.config.sections.EncoderOnlyConfig``.
        src_vocab_size, tgt_vocab_size: tokens of each side, special ones included.
        generator: source of dropout; None draws from PyTorch's global generator.

    Raises:
        ValueError: the embeddings are to be tied, but the two vocabularies differ in size.
    """

    def __init__(
        self,
        config: EncoderOnlyConfig,
        src_vocab_size: int,
        tgt_vocab_size: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.max_seq_len, self.vocab_sizes = config.max_seq_len, (src_vocab_size, tgt_vocab_size)
        is_tied = config.tie_embeddings != "none"
        if is_tied and src_vocab_size != tgt_vocab_size:
            raise ValueError(
                f"tie_embeddings='all' needs one vocabulary, not {src_vocab_size} and {tgt_vocab_size} tokens"
            )
        self.src_embedding = build_embedding(config, generator, src_vocab_size, config.max_seq_len)
        layers = [EncoderLayer(config, generator) for _ in range(config.num_layers)]
        self.encoder_layers = nn.ModuleList(layers)
        self.encoder_norm = build_norm(config, generator) if config.norm == "pre" else nn.Identity()
        self.output = build_output(config, generator, tgt_vocab_size)
        self.relative = build_relative(config, is_causal=False)
        self.attention = {("encoder", n): layer.self_attention for n, layer in enumerate(layers, start=1)}
        name_hook_points(self)

    def encode(self, src: torch.Tensor) -> Memory:
        """Read a source (B, S) int64; each token attends to all tokens but PAD. See ``Seq2Seq.encode``."""
        self.check_src(src)
        mask = self.source_mask(src)
        ids = torch.arange(src.shape[1], device=src.device)[None]
        x, positions = self.src_embedding(src), self.relative(ids, ids)
        for layer in self.encoder_layers:
            x = layer(x, mask, positions)
        return Memory(self.encoder_norm(x), mask)

    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: KeyValueCache | None = None) -> DecoderOutput:
        """Score the next T positions of the source, given ``tgt_in`` (B, T) int64; see ``Seq2Seq.decode``.

        Steps after the source's EOS repeat the logits of EOS. The cache only counts the steps.
        """
        past = 0 if cache is None else cache.length
        self.check_tgt_in(tgt_in, memory, past)
        end = past + tgt_in.shape[1]
        set_step(past)
        steps = torch.arange(past + 1, end + 1, device=tgt_in.device)
        last = memory.mask.sum(dim=-1)[:, 0] - 1  # (B, 1): the position of EOS
        positions = steps.minimum(last).clamp(min=0)  # (B, T)
        states = memory.states.gather(1, positions[..., None].expand(-1, -1, memory.states.shape[-1]))
        return DecoderOutput(self.output(states, self.src_embedding), KeyValueCache((), end))
