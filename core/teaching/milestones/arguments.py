"""Call the reader's code: fill in arguments by their usual names, and read tensors out of results."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from core.interpret.any_module.calling import described
from core.teaching.doctor.black_box import NotCheckableError

DROPOUT = 0.1  # so that dropout which acts in evaluation mode shows
PAD, BOS, EOS = 0, 1, 2

_NAMES = {
    "d_ff": "d_ff dff ff_dim dim_feedforward ffn_dim ff_hidden d_hidden d_hid d_inner inner_dim ffn_hidden ff hidden",
    "d_model": (
        "d_model dmodel model_dim dim_model dim embed_dim embed_size emb_size emb_dim embedding_dim hidden_size "
        "hidden_dim n_embd d_embed d_in d_out d_hid size features"
    ),
    "num_heads": "num_heads n_heads nheads heads h nhead n_head num_attention_heads head",
    "d_k": "d_k dk d_v dv head_dim dim_head d_head head_size",
    "max_len": "max_len max_seq_len max_length maxlen max_positions max_position num_positions n_positions n_position "
    "seq_len "
    "length context_length block_size size",
    "vocab_size": "vocab_size vocab src_vocab_size tgt_vocab_size src_vocab tgt_vocab num_embeddings n_vocab "
    "num_tokens src_vocab_len tgt_vocab_len",
    "dropout": "dropout dropout_p dropout_rate drop drop_prob p attn_dropout p_dropout",
    "pad": "pad_token_id padding_idx pad_idx pad_id pad src_pad_idx trg_pad_idx tgt_pad_idx",
    "temperature": "temperature",
    "expansion": "forward_expansion expansion expansion_factor mlp_ratio",
    "num_layers": "num_layers n_layers layers n num_encoder_layers num_decoder_layers",
}
_CONFIGS = ("config", "cfg", "conf", "args")
_PARTS = {
    "heads": "self_attn self_attention src_attn cross_attn cross_attention attn attention mha multi_head_attention",
    "feed_forward": "feed_forward ff ffn mlp",
}


class WrongOutputError(Exception):
    """The reader's code returns something of another shape than it should; the message is a sentence."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of what the checks build; all differ, so that no axis passes for another."""

    d_model: int = 24
    num_heads: int = 3
    d_ff: int = 40
    max_len: int = 50
    vocab_size: int = 13

    def values(self) -> dict[str, Any]:
        """Return a value for each kind of argument."""
        d_k = self.d_model // self.num_heads
        return {
            **vars(self),
            "d_k": d_k,
            "dropout": DROPOUT,
            "pad": PAD,
            "temperature": math.sqrt(d_k),
            "num_layers": 1,
            "expansion": 2,
        }


def build(
    what: Callable[..., Any],
    sizes: Sizes,
    kinds: Iterable[str],
    parts: Mapping[str, Callable[[], Any]] | None = None,
) -> Any:
    """Call a class or function with sizes for the arguments that it has, and return the result in evaluation mode.

    Args:
        what: the class or function.
        sizes: of the model.
        kinds: kinds of arguments that it may have; a name that stands for several is of the first.
        parts: functions that build modules for arguments such as ``self_attn``.

    Raises:
        NotCheckableError: an argument without a default has an unknown name.
    """
    parts = parts or {}
    values = sizes.values()
    named = building_parameters(what)
    kind_by_name = kinds_by_name(named, (*kinds, "dropout", "pad"))
    arguments: dict[str, Any] = {}
    for name, parameter in named.items():
        kind = kind_by_name[name]
        part = next((each for each, names in _PARTS.items() if name.lower() in names.split() and each in parts), None)
        if kind and not (kind == "dropout" and parameter.default is None):
            arguments[name] = values[kind]
        elif parameter.default is not parameter.empty:
            continue
        elif part:
            arguments[name] = parts[part]()
        elif name.lower() in _CONFIGS:
            every = {each: value for kind, value in values.items() for each in _NAMES.get(kind, kind).split()}
            arguments[name] = SimpleNamespace(**every)
        else:
            raise NotCheckableError(
                f"{_name_of(what)} needs the argument {name!r}, whose meaning its name does not say; give it a default."
            )
    built = what(**arguments)
    if isinstance(built, nn.Module) and "_modules" not in vars(built):
        raise NotCheckableError("its __init__ does not call super().__init__(); it may not be written yet.")
    return built.eval() if isinstance(built, nn.Module) else built


def kinds_by_name(names: Iterable[str], kinds: Iterable[str]) -> dict[str, str | None]:
    """Return the kind of each argument; of two widths where an inner one is missing, the second is the inner one."""
    found = {name: kind_of(name, kinds) for name in names}
    widths = [name for name, kind in found.items() if kind == "d_model"]
    if "d_ff" in kinds and "d_ff" not in found.values() and len(widths) > 1:
        found[widths[1]] = "d_ff"
    return found


def building_parameters(what: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters by which a class or function is called; those of a base class if it passes on all."""
    for each in what.__mro__ if inspect.isclass(what) else (what,):
        if named := _named(inspect.signature(each)):
            return named
    return {}


def kind_of(name: str, kinds: Iterable[str]) -> str | None:
    """Return the first of these kinds that an argument's name stands for, or None."""
    return next((kind for kind in kinds if name.lower() in _NAMES[kind].split()), None)


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function, or of a module's ``forward``, without ``*args`` and ``**kwargs``."""
    called = function.forward if isinstance(function, nn.Module) else function
    return _named(inspect.signature(called))


def required_masks(function: Callable[..., Any]) -> dict[str, None]:
    """Return None for each parameter for a mask that has no default, to be passed where there is no mask."""
    named = parameters_of(function)
    return {name: None for name in mask_parameters(function) if named[name].default is inspect.Parameter.empty}


def mask_parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters for masks, in order."""
    return [name for name in parameters_of(function) if "mask" in name.lower() and "value" not in name.lower()]


def tensors_in(result: Any) -> list[torch.Tensor]:
    """Return the tensors of a result: itself, or those of a tuple, list, dict or object, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, Mapping):
        return [each for value in result.values() for each in tensors_in(value)]
    if isinstance(result, tuple | list):
        return [each for value in result for each in tensors_in(value)]
    return []


def tensor_of(result: Any, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Return the first tensor of a result that has a shape, or None."""
    return next((each for each in tensors_in(result) if tuple(each.shape) == shape), None)


def output_of(result: Any, shape: tuple[int, ...], given: str) -> torch.Tensor:
    """Return the tensor of a shape in a result.

    Raises:
        NotCheckableError: the result is None, as that of a function whose body is still to be written.
        WrongOutputError: there is no tensor of this shape; the message names those that there are.
    """
    found = tensor_of(result, shape)
    if found is not None:
        return found
    if result is None:
        raise NotCheckableError("it returns None; its body may not be written yet.")
    shapes = ", ".join(str(tuple(each.shape)) for each in tensors_in(result)) or described(result)
    raise WrongOutputError(f"Of {given} it returns {shapes}; it must return {shape}.")


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return numbers of a standard normal distribution, float32, always the same for a shape and a seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _named(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: each for name, each in signature.parameters.items() if each.kind not in unnamed}


def _name_of(what: Any) -> str:
    return getattr(what, "__name__", type(what).__name__)
