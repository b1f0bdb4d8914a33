"""One forward pass whose flow is known: read where the features flow, and verified."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import HeatError, InputError, ModelError
from ._batches import Inputs
from ._columns import Layer
from ._double import Stage
from ._heads import apply_head, linear_call, outputs_of, reproduces
from ._plan import FlowError, Plan, Reading, Site
from ._pooling import channel_of, pool
from ._tracing import Counter, tensors_of

__all__ = ["called", "conclude", "pool_layer", "tap"]


def called(model: nn.Module, inputs: Inputs) -> Any:
    """What the model returns; what it raises is said in a line, with the shapes that it was given."""
    try:
        return model(*inputs.args, **inputs.kwargs)
    except (HeatError, FlowError):
        raise
    except Exception as error:
        line = next(iter(str(error).strip().splitlines()), "").removesuffix(".")
        shapes = " and ".join(str(tuple(tensor.shape)) for tensor in inputs.tensors)
        raise ModelError(
            f"The model raised {type(error).__name__}{f': {line}' if line else ''}, on a batch of shape {shapes}. "
            "Check that it takes such inputs: their size, their channels, their type."
        ) from error


class Watcher(Counter):
    """Read the head's input and pool the maps as they flow by, before a later call can change them in place."""

    def __init__(self, plan: Plan, inputs: Inputs) -> None:
        super().__init__()
        self.plan, self.n, self.mask = plan, inputs.size, inputs.mask
        self.std: Tensor | None = None
        self.linear: tuple[Tensor, Tensor, Tensor | None] | None = None

    def before(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        maps = self.plan.maps
        if maps is not None and (self.position, name) == (maps.position, maps.name):
            tensors = list(tensors_of((args, kwargs)))
            if (
                maps.slot < len(tensors)
                and tensors[maps.slot].ndim > maps.channel
                and tensors[maps.slot].shape[0] == self.n
            ):
                self.std = maps.pool(tensors[maps.slot], self.mask).std
        if self.plan.given is None and (self.position, name) == self.plan.site:
            found = linear_call(name, args, kwargs, self.n)
            self.linear = None if found is None else (found[0].clone(), *found[1:])

    def after(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        given = self.plan.given
        if given is not None and (self.position, name) == self.plan.site and isinstance(output, Tensor):
            if output.numel() != self.n * given[0].shape[1]:
                raise FlowError
            self.linear = (output.detach().reshape(self.n, -1).clone(), *given)


class Reader:
    """Read what modules tell of: the layers and, in a direct pass, the head's input and the maps."""

    def __init__(self, plan: Plan, inputs: Inputs, watcher: Counter | None, maps: dict[str, Tensor] | None) -> None:
        self.plan, self.inputs, self.watcher, self.maps = plan, inputs, watcher, maps
        self.layers = dict.fromkeys(plan.layers, Layer(None, None))
        self.std: Tensor | None = None
        self.z: Tensor | None = None

    def enter(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self.plan.direct:
            self._read(name, True, (args, kwargs))

    def leave(self, name: str, output: Any) -> None:
        with nullcontext() if self.watcher is None else self.watcher.pause():
            if name in self.layers:
                self.layers[name] = pool_layer(name, output, self.inputs, *self.plan.layers[name])
                if self.maps is not None:
                    self.maps[name] = unpooled(next(tensors_of(output)), *self.plan.layers[name])
            if self.plan.direct:
                self._read(name, False, output)

    def _read(self, name: str, entering: bool, values: Any) -> None:
        """Read now what a later call may change in place."""
        plan, n = self.plan, self.inputs.size
        if (site := plan.maps_at) is not None and (site.module, site.entering) == (name, entering):
            assert plan.maps is not None
            found = at(site, values)
            if self.std is not None or found.ndim <= plan.maps.channel or found.shape[0] != n:
                raise FlowError
            self.std = plan.maps.pool(found, self.inputs.mask).std
        if (site := plan.features_at) is not None and (site.module, site.entering) == (name, entering):
            assert plan.head is not None
            found, width = at(site, values), plan.head[0].shape[1]
            if self.z is not None or found.numel() != n * width or found.shape[0] != n:
                raise FlowError
            self.z = found.detach().reshape(n, width).clone()

    @property
    def linear(self) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """The head's input, weight and bias."""
        if self.z is None or self.plan.head is None:
            return None
        weight, bias = self.plan.head
        return self.z, weight.detach().flatten(1), None if bias is None else bias.detach()


def at(site: Site, values: Any) -> Tensor:
    for slot, tensor in enumerate(tensors_of(values)):
        if slot == site.slot:
            return tensor
    raise FlowError


def tap(
    stage: Stage, inputs: Inputs, plan: Plan, half: bool, maps: dict[str, Tensor] | None = None, verify: bool = True
) -> Reading:
    """A pass whose flow is known; :class:`FlowError` if it takes another way. The layers go into ``maps`` unpooled."""
    watcher = None if plan.direct else Watcher(plan, inputs)
    reader = Reader(plan, inputs, watcher, maps)
    with stage.listening(reader, plan.tapped), nullcontext() if watcher is None else watcher:
        output = called(stage.model, inputs)
    outputs = outputs_of(output, inputs.size)
    linear, std = (reader.linear, reader.std) if watcher is None else (watcher.linear, watcher.std)
    lost = (
        (plan.site and linear is None)
        or (plan.maps and std is None)
        or (plan.output and plan.output not in outputs)
        or any(layer.avg is None for layer in reader.layers.values())
    )
    if lost or (watcher is not None and watcher.position != plan.calls):
        raise FlowError
    return conclude(plan, outputs, linear, std, reader.layers, half, verify)


def conclude(
    plan: Plan,
    outputs: Mapping[str, Tensor],
    linear: tuple[Tensor, Tensor, Tensor | None] | None,
    std: Tensor | None,
    layers: dict[str, Layer],
    half: bool,
    verify: bool = True,
) -> Reading:
    """Put a reading together and verify its head; without a head the model's output is the feature vector."""
    output = None if plan.output is None else outputs[plan.output]
    if linear is None:
        assert output is not None
        features = pool(output)
        assert features.avg is not None
        logits = next((v for k, v in outputs.items() if k.split(".")[-1] == "logits" and k != plan.output), None)
        return Reading(features.avg, features.std if output.ndim > 2 else std, layers, logits, plan.given)
    z, weight, bias = linear
    made = apply_head(z, weight, bias)
    if output is not None and verify and not reproduces(made, output, half):
        raise FlowError
    logits = made if output is None else output.reshape(output.shape[0], -1)
    return Reading(pooled(z), std, layers, logits, (weight, bias), made)


def pool_layer(name: str, output: Any, inputs: Inputs, channel: int | None, patches: slice | None) -> Layer:
    tensor, n = next(tensors_of(output), None), inputs.size
    if tensor is None or not tensor.is_floating_point() or tensor.ndim < 2 or tensor.shape[0] != n:
        shape = "no tensor" if tensor is None else f"a tensor of shape {tuple(tensor.shape)}"
        raise InputError(
            f"The layer {name!r} returns {shape} for {n} samples; it must return maps, tokens or vectors, a row a "
            "sample. Choose another layer."
        )
    return Layer(*(None if t is None else pooled(t) for t in pool(tensor.detach(), channel, patches, mask=inputs.mask)))


def unpooled(x: Tensor, channel: int | None, patches: slice | None) -> Tensor:
    """Maps, tokens or vectors as (n, channels, positions), safe from a later call that changes them in place."""
    x = pooled(x.detach())
    if x.ndim == 2:
        return x[:, :, None].clone()
    channel = channel_of(tuple(x.shape)) if channel is None else channel % x.ndim
    if patches is not None and x.ndim == 3:
        x = x[:, patches] if channel == 2 else x[..., patches]
    return x.movedim(channel, 1).flatten(2).clone()


def pooled(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
