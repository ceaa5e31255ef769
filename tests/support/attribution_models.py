"""Random small models of every family, one for each option that attribution reads, and predictions to explain."""

import torch

from core.config.tasks import DigitsConfig
from core.interpret.attribution.prediction import Prediction, prediction_at
from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.seq2seq import Seq2Seq
from core.models.transformer import Transformer
from core.tasks import Task, build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import make_model

SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 24, "max_seq_len": 12}
DEPTH = {"num_encoder_layers": 2, "num_decoder_layers": 2}
BLOCKS = {
    f"{norm}, {positions}": {"norm": norm, "positions": positions}
    for norm, positions in (
        ("post", "sinusoidal"),
        ("pre", "sinusoidal"),
        ("pre", "alibi"),
        ("pre", "rope"),
        ("post", "vo-rope"),
    )
}
TRANSFORMERS = BLOCKS | {
    "window": {"attention": "window", "attention_window": 2},
    "linear": {"attention": "linear", "norm": "pre"},
    "pre, all tied": {"norm": "pre", "tie_embeddings": "all"},
    "as in BART": {"positions": "learned", "embedding_norm": True, "scale_embeddings": False},
    "as nn.Transformer": {"final_norm": "always"},
    "post, RMSNorm": {"norm_block": "rms-norm"},
    "as in Marian": {"positions": "sinusoidal-halves", "source_bos": False, "activation": "silu"},
    "as in T5": {"norm": "pre", "norm_block": "rms-norm", "positions": "relative-bias", "feed_forward_block": "gated"},
}
CONTINUING = {"source_bos": False, "source_eos": False, "target_bos": False}  # as in GPT-2
ENCODER_ONLY = [f"encoder-only {options}" for options in ("pre, sinusoidal", "post, vo-rope")]
DECODER_ONLY = [f"decoder-only {options}" for options in ("post, sinusoidal", "pre, rope", "post, vo-rope")]
DECODER_ONLY += ["decoder-only as in GPT-2"]
WITH_DECODER_STREAM = [*TRANSFORMERS, *DECODER_ONLY]
WITH_STREAM = [*WITH_DECODER_STREAM, *ENCODER_ONLY]
RECURRENT = ["gru", "lstm", "stack-rnn"]
WITH_DECODER = [*WITH_DECODER_STREAM, *RECURRENT]
FAMILIES = [*WITH_DECODER, *ENCODER_ONLY]


def build(name: str, seed: int = 0) -> Seq2Seq:
    """A random model with predictions that depend on its source."""
    torch.manual_seed(seed)
    if name in RECURRENT:
        model = make_model(GRUSeq2Seq, cell=name, d_embedding=8, d_hidden=12, num_layers=2, max_seq_len=12)
    elif "only" in name:
        family, options = name.split(" ", 1)
        kind = DecoderOnly if family == "decoder-only" else EncoderOnly
        chosen = {"norm": "pre", "positions": "learned"} | CONTINUING if options == "as in GPT-2" else BLOCKS[options]
        model = make_model(kind, **SIZES, num_layers=2, **chosen)
    else:
        model = make_model(Transformer, **SIZES | DEPTH | TRANSFORMERS[name])
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "positions" in path or "relative" in path:
                torch.nn.init.normal_(parameter)
            if path.endswith("bias"):  # zero by default, and then no test would see one forgotten
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.output.bias[[PAD_ID, BOS_ID, EOS_ID]] = -50
    return model.eval()


def digits() -> Task:
    """The task with the vocabulary of these models."""
    return build_task(DigitsConfig(family="digits", transform="reverse", min_length=3, max_length=8))


def predict(model: Seq2Seq, *, step: int = 2, symbols: str = "48295", foil: bool = True) -> Prediction:
    """The prediction of a step, with the foil that is the least likely digit."""
    plain = prediction_at(model, digits(), list(symbols), step=step)
    with torch.no_grad():
        worst = 3 + int(model(plain.src, plain.tgt_in)[0, -1, 3:].argmin())
    return prediction_at(
        model, digits(), list(symbols), step=step, foil=digits().tgt_vocab.tokens[worst] if foil else None
    )
