"""A model by its name, with its weights."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import Argument, HeatError, InputError
from ._functions import from_function
from ._timm import from_timm
from ._weights import check_weights, put_weights
from ._words import RandomWeights

__all__ = ["load_model", "new_model"]


def load_model(
    name: str,
    weights: str | PathLike[str] | None = None,
    *,
    pretrained: bool = False,
    folder: Path | None = None,
    root: Path | None = None,
) -> nn.Module:
    """A model in evaluation mode.

    Args:
        name: ``timm:resnet34`` (settings of timm follow as ``timm:resnet34?num_classes=10&in_chans=1``), or
            ``package.module:function``, a function without arguments that returns an ``nn.Module``; the current
            folder is searched too.
        weights: a file of exactly the model's parameters and buffers: ``.safetensors``, or what ``torch.save`` wrote
            (``.pt``, ``.pth``, ``.bin``, ``.ckpt``), as far as torch's restricted unpickler reads it
            (``weights_only=True``, which makes tensors and plain containers alone). Dictionaries around the weights
            (``state_dict``, ``model``, ``ema``, …) and prefixes (``module.``, ``_orig_mod.``) are taken off.
        pretrained: fetch timm's own weights; ``timm:resnet34?pretrained`` says the same.
        folder: where ``module.py`` of ``module:function`` is looked for first.
        root: where data lie, for a function that has an argument of this name.

    What a model draws at random when it is made is the same in every run. A function is called a second time, to see
    which weights it draws; those are said in a warning.
    """
    file = None if weights is None else check_weights(Path(weights))
    model = seeded(0, name, pretrained, file is not None, folder, root)
    if file is not None:
        put_weights(model, file, name)
    elif not name.startswith("timm:"):
        say_what_is_drawn(model, name, folder, root)
    return model.eval()


def seeded(seed: int, *arguments: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(*arguments)


def say_what_is_drawn(model: nn.Module, name: str, folder: Path | None, root: Path | None) -> None:
    """Warn of weights that are others under another seed: nobody trained them."""
    try:
        again = seeded(1, name, False, False, folder, root)
    except HeatError:
        again = model
    other = again.state_dict()
    own = {key: p for key, p in model.named_parameters() if p.ndim > 1}
    drawn = [k for k, p in own.items() if k not in other or not torch.equal(p.cpu(), other[k].cpu())]
    some = f"{', '.join(drawn[:3])}{' …' if len(drawn) > 3 else ''}"
    if again is model and own:
        text = f"{name} makes one model alone, so it cannot be told whether its weights are random. If they are, pass "
    elif own and len(drawn) == len(own):
        text = f"{name} has random weights, so its features mean little. Pass "
    elif drawn:
        text = f"Some weights of {name} are random ({some}). If they should not be, pass "
    else:
        return
    warnings.warn(
        RandomWeights(text, Argument("weights"), ", or load weights in the function."),
        stacklevel=3,
    )


def new_model(name: str) -> nn.Module:
    """A model that is to be trained: as it is made, with the weights that it draws.

    Args:
        name: as for :func:`load_model`.
    """
    return make(name, pretrained=False, own_weights=True)


def make(
    name: str, pretrained: bool, own_weights: bool, folder: Path | None = None, root: Path | None = None
) -> nn.Module:
    source, _, rest = name.partition(":")
    if not rest:
        raise InputError(f"{name!r} is not a model. Write timm:resnet34, or package.module:function.")
    if source == "timm":
        return from_timm(rest, pretrained, own_weights)
    if pretrained:
        raise InputError(
            f"pretrained is for timm's models; {name} loads its own weights, or pass a file of weights with ",
            Argument("weights"),
            ".",
        )
    return from_function(source, rest, folder, root)
