"""Find the linear head among the calls of a forward pass, and verify that it reproduces the logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import Argument, InputError
from ._double import precision
from ._tracing import Node

__all__ = ["Candidate", "find_head", "linear_call", "outputs_of", "reproduces"]

LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(slots=True)
class Candidate:
    """A linear map of one vector a sample: perhaps the head."""

    position: int
    name: str
    node: Node
    z: Tensor
    weight: Tensor
    bias: Tensor | None
    named: bool = False  # the user says that it is the head

    def __call__(self) -> Tensor:
        return apply_head(self.z, self.weight, self.bias)


def linear_call(
    name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], n: int
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """The vector, weight and bias of a linear layer or a convolution of single positions; None for any other call."""
    if name != "linear" and name not in ("conv1d", "conv2d", "conv3d"):
        return None
    x, weight, bias = (
        kwargs.get(key, args[i] if len(args) > i else None) for i, key in enumerate(("input", "weight", "bias"))
    )
    if not (isinstance(x, Tensor) and isinstance(weight, Tensor)) or weight.ndim < 2:
        return None
    width = weight.shape[1]
    if x.numel() != n * width or weight[0, 0].numel() != 1 or x.shape[0] != n:
        return None
    return x.detach().reshape(n, width), weight.detach().flatten(1), None if bias is None else bias.detach()


def outputs_of(output: Any, n: int, name: str = "output") -> dict[str, Tensor]:
    """The floating tensors that a model returns, by name, the ones called ``logits`` first."""
    found = dict(flat(output, name))
    usable = {k: v for k, v in found.items() if v.is_floating_point() and v.ndim and v.shape[0] == n}
    return dict(sorted(usable.items(), key=lambda item: "logits" not in item[0].split(".")))


def flat(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value.detach()
    elif isinstance(value, Mapping) or hasattr(value, "__dataclass_fields__"):
        for key, item in (value if isinstance(value, Mapping) else vars(value)).items():
            yield from flat(item, str(key) if name == "output" else f"{name}.{key}")
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from flat(dict(zip(value._fields, value, strict=True)), name)
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from flat(item, f"{name}.{i}")
    elif isinstance(getattr(value, "logits", None), Tensor):
        yield "logits", value.logits.detach()


def apply_head(z: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    dtype = torch.float64 if z.dtype == weight.dtype == torch.float64 else torch.float32
    with precision(z.device):
        return F.linear(z.to(dtype), weight.to(z.device, dtype), None if bias is None else bias.to(z.device, dtype))


def reproduces(made: Tensor, logits: Tensor, half: bool = False) -> bool:
    """Whether the head's product is the model's output, up to rounding; samples that are not finite do not count."""
    logits = logits.reshape(len(logits), -1)
    if made.shape != logits.shape:
        return False
    tolerance = 0.05 if half or logits.dtype in (torch.float16, torch.bfloat16) else 1e-3
    logits = logits.to(made.dtype)
    finite = torch.isfinite(made).all(1) & torch.isfinite(logits).all(1)
    made, logits = made[finite], logits[finite]
    return bool((made - logits).abs().amax() <= tolerance * logits.abs().amax() + 1e-6) if len(logits) else True


def find_head(
    model: nn.Module, candidates: Sequence[Candidate], outputs: Mapping[str, Tensor], half: bool
) -> tuple[Candidate, str | None]:
    """The head's call and the name of the output that holds the logits; None if the head named gives others."""
    for name, logits in outputs.items():
        if logits.numel() and not torch.isfinite(logits.flatten(1)).all(1).any():
            raise InputError(
                f"The model's {name} is not finite for any of the {len(logits)} samples of this batch, so its head "
                "cannot be verified. Check that the images are normalised as in training, or leave out ",
                Argument("autocast", torch.float16),
                ".",
            )
    named = [c for c in candidates if c.named]
    for name, logits in outputs.items():
        for candidate in reversed(named or candidates):
            if reproduces(candidate(), logits, half):
                return candidate, name
    if named:
        return named[-1], None
    shapes = (
        ", ".join(f"{name} {tuple(value.shape)}" for name, value in outputs.items())
        or "nothing with a row for each sample"
    )
    raise InputError(
        f"No linear layer reproduces what the model returns ({shapes}). {listing(model)} "
        "Say which one is the head with ",
        Argument("head"),
        " (its name; in Python also its weights, (W, b)), or pass ",
        Argument("head", False),
        " to take the model's output itself as the features.",
    )


def listing(model: nn.Module, most: int = 8) -> str:
    """The linear layers of a model in words, the last ones first."""
    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, LINEAR) and m.weight[0, 0].numel() == 1]
    if not layers:
        return "The model has no linear layer."
    words = [
        f"{name or 'the model itself'} ({m.weight.shape[1]} → {m.weight.shape[0]})"
        for name, m in reversed(layers[-most:])
    ]
    more = f" and {len(layers) - most} before them" if len(layers) > most else ""
    return f"Its linear layers, the last first: {', '.join(words)}{more}."
