"""One forward pass: recorded in full the first time, then only tapped where the features flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import HeatError, InputError, ModelError
from ._batches import Inputs
from ._columns import Layer
from ._heads import Candidate, apply_head, find_head, linear_call, listing, outputs_of, reproduces
from ._maps import Maps, collapse, find_maps
from ._pooling import channel_of, pool
from ._stages import Seen, find_stages
from ._tracing import Call, Counter, Node, Recorder, tensors_of

__all__ = ["FlowError", "Plan", "Reading", "called", "frozen", "probe_stages", "record", "tap"]

Given = tuple[Tensor, Tensor | None]


class FlowError(Exception):
    """The calls of this pass are not those that the plan was made for."""


@dataclass
class Plan:
    """Where the features of a model flow: found once, then read in every pass."""

    calls: int  # how many calls a pass makes
    output: str | None  # the output that holds the logits or, without a head, the features
    site: tuple[int, str] | None = None  # the head's call; of a head given as (W, b), the call that makes its input
    given: Given | None = None  # a head that is not a layer of the model
    maps: Maps | None = None
    layers: dict[str, tuple[int | None, slice | None]] = field(default_factory=dict)


@dataclass
class Reading:
    """What one pass gave."""

    avg: Tensor
    std: Tensor | None
    layers: dict[str, Layer]
    logits: Tensor | None = None
    head: Given | None = None
    product: Tensor | None = None  # of avg and the head, in full precision

    @property
    def columns(self) -> dict[str, Tensor]:
        """What there is, by the names that energies use."""
        found = {"avg": self.avg, "std": self.std, "logits": self.logits if self.product is None else self.product}
        for name, layer in self.layers.items():
            found |= {f"avg@{name}": layer.avg, f"std@{name}": layer.std}
        return {name: column for name, column in found.items() if column is not None}


@contextmanager
def frozen(model: nn.Module, device: torch.device, autocast: torch.dtype | None) -> Iterator[None]:
    """Evaluation mode, no gradient, and everything as it was when done: modes, random states."""
    modes = [(module, module.training) for module in model.modules()]
    devices = [device] if device.type == "cuda" else []
    with ExitStack() as stack:
        stack.callback(restore, modes)
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.no_grad())
        if autocast is not None:
            stack.enter_context(torch.autocast(device.type, dtype=autocast))
        for module, _ in modes:
            module.training = False
        yield


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


def restore(modes: list[tuple[nn.Module, bool]]) -> None:
    for module, mode in modes:
        module.training = mode


class Watcher(Counter):
    """Read the head's input and pool the maps as they flow by, before a later call can change them in place."""

    def __init__(self, plan: Plan, inputs: Inputs) -> None:
        super().__init__()
        self.plan, self.n, self.mask = plan, len(inputs), inputs.mask
        self.std: Tensor | None = None
        self.linear: tuple[Tensor, Tensor, Tensor | None] | None = None

    def before(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        maps = self.plan.maps
        if maps is not None and (self.position, name) == (maps.position, maps.name):
            tensors = list(tensors_of((args, kwargs)))
            if (
                maps.slot < len(tensors)
                and tensors[maps.slot].ndim > maps.channel
                and len(tensors[maps.slot]) == self.n
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


def tap(model: nn.Module, inputs: Inputs, plan: Plan, half: bool, maps: dict[str, Tensor] | None = None) -> Reading:
    """A pass whose flow is known; :class:`FlowError` if it takes another way. The layers go into ``maps`` unpooled."""
    n, layers = len(inputs), dict.fromkeys(plan.layers, Layer(None, None))
    watcher = Watcher(plan, inputs)

    def read(name: str, output: Any) -> None:
        with watcher.pause():
            layers[name] = pool_layer(name, output, inputs, *plan.layers[name])
            if maps is not None:
                maps[name] = unpooled(next(tensors_of(output)), *plan.layers[name])

    with hooks(model, plan.layers, read), watcher:
        output = called(model, inputs)
    outputs = outputs_of(output, n)
    lost = (
        (plan.site and watcher.linear is None)
        or (plan.maps and watcher.std is None)
        or (plan.output and plan.output not in outputs)
    )
    if lost or watcher.position != plan.calls:
        raise FlowError
    return conclude(plan, outputs, watcher.linear, watcher.std, layers, half)


def conclude(
    plan: Plan,
    outputs: Mapping[str, Tensor],
    linear: tuple[Tensor, Tensor, Tensor | None] | None,
    std: Tensor | None,
    layers: dict[str, Layer],
    half: bool,
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
    if output is not None and not reproduces(made, output, half):
        raise FlowError
    logits = made if output is None else output.reshape(len(output), -1)
    return Reading(pooled(z), std, layers, logits, (weight, bias), made)


def record(
    model: nn.Module, inputs: Inputs, names: Sequence[str], head: nn.Module | Given | bool | None, half: bool
) -> tuple[Plan, Reading | None]:
    """A pass that finds out where the features flow; its reading is None where a second pass must pool the maps."""
    n = len(inputs)
    candidates: list[Candidate] = []
    stds: dict[int, Tensor | None] = {}
    layers: dict[str, Layer] = {}
    layouts: dict[str, tuple[int | None, slice | None]] = {}
    given = head if isinstance(head, tuple) else None
    inside = False
    own = {id(p) for p in head.parameters()} if isinstance(head, nn.Module) else set()

    def watch(call: Call, node: Node) -> None:
        if (maps := collapse(node)) is not None and maps.position == call.position:
            stds[call.position] = maps.pool(call.tensors[maps.slot], inputs.mask).std
        if given is not None:
            if call.output.numel() == n * given[0].shape[1] and node.shape[0] == n and call.output.is_floating_point():
                z = call.output.detach().reshape(n, -1).clone()
                candidates.append(Candidate(call.position, call.name, node, z, *given))
        elif (found := linear_call(call.name, call.args, call.kwargs, n)) is not None and node.sources[0][0] == 0:
            z, weight, bias = found
            named = inside or any(id(t) in own for t in call.tensors[1:])
            candidates.append(Candidate(call.position, call.name, node.sources[0][1], z.clone(), weight, bias, named))

    recorder = Recorder(inputs.tensors, watch)

    def read(name: str, output: Any) -> None:
        with recorder.pause():
            tensor = next(tensors_of(output), None)
            node = None if tensor is None else recorder.node(tensor)
            layouts[name] = (node.channel, node.patches) if node is not None else (None, None)
            layers[name] = pool_layer(name, output, inputs, *layouts[name])

    def enter(*_: Any) -> None:
        nonlocal inside
        inside = True

    def leave(*_: Any) -> None:
        nonlocal inside
        inside = False

    with ExitStack() as stack:
        stack.enter_context(hooks(model, names, read))
        if isinstance(head, nn.Module):
            for handle in (head.register_forward_pre_hook(enter), head.register_forward_hook(leave)):
                stack.callback(handle.remove)
        stack.enter_context(recorder)
        output = called(model, inputs)
    if missing := [name for name in names if name not in layers]:
        raise InputError(
            f"The layer {missing[0]!r} took no part in this pass. Name modules that the model calls in evaluation mode."
        )

    outputs = outputs_of(output, n)
    plan = Plan(recorder.position, None, given=given, layers=layouts)
    linear = None
    if head is False or (
        given is not None and not any(reproduces(c(), v, half) for c in candidates for v in outputs.values())
    ):
        plan.output = features_among(outputs, given)
        end = recorder.node(next(t for t in tensors_of(output) if t.data_ptr() == outputs[plan.output].data_ptr()))
    else:
        if isinstance(head, nn.Module) and not any(c.named for c in candidates):
            raise InputError(
                f"The head that was named maps no single vector a sample to logits in this pass. {listing(model)} "
                "Name one of them."
            )
        chosen, plan.output = find_head(model, candidates, outputs, half)
        plan.site, end = (chosen.position, chosen.name), chosen.node
        linear = (chosen.z, chosen.weight, chosen.bias)
    plan.maps = None if end is None else find_maps(end)

    if plan.maps is not None and plan.maps.position not in stds:
        return plan, None
    std = None if plan.maps is None else stds[plan.maps.position]
    return plan, conclude(plan, outputs, linear, std, layers, half)


def features_among(outputs: Mapping[str, Tensor], given: Given | None) -> str:
    """The output that holds the features, where there is no head to tell."""
    usable = {k: v for k, v in outputs.items() if v.ndim >= 2 and k.split(".")[-1] != "logits"}
    if given is not None:
        usable = {k: v for k, v in usable.items() if v.ndim == 2 and v.shape[1] == given[0].shape[1]}
    if not usable:
        shapes = (
            ", ".join(f"{name} {tuple(value.shape)}" for name, value in outputs.items())
            or "no tensor with a row for each sample"
        )
        wanted = "" if given is None else f", and W {tuple(given[0].shape)} reproduces none of them"
        raise InputError(
            f"The model returns no features: {shapes}{wanted}. Leave out head= to have the head found, or pass the "
            "weights of its last layer."
        )
    vectors = [k for k, v in usable.items() if v.ndim == 2]
    return (vectors or list(usable))[0]


def probe_stages(model: nn.Module, inputs: Inputs) -> tuple[str, ...]:
    """The names of the stages, by what each module returns."""
    n, seen = len(inputs), dict[str, Seen]()
    recorder = Recorder(inputs.tensors)

    def read(name: str, output: Any) -> None:
        tensor = next(tensors_of(output), None)
        node = None if tensor is None else recorder.node(tensor)
        if node is not None and node.channel is not None and node.learned and node.shape[0] == n:
            shape = list(node.shape)
            seen.pop(name, None)
            seen[name] = Seen(shape.pop(node.channel), tuple(shape[1:]))

    with hooks(model, [name for name, _ in model.named_modules() if name], read), recorder:
        called(model, inputs)
    return find_stages(model, seen)


@contextmanager
def hooks(model: nn.Module, names: Any, read: Any) -> Iterator[None]:
    """Call ``read(name, output)`` after each of these modules; the hooks are gone afterwards, whatever happens."""
    with ExitStack() as stack:
        for name in names:
            module = model.get_submodule(name)
            handle = module.register_forward_hook(lambda _m, _i, output, name=name: read(name, output))
            stack.callback(handle.remove)
        yield


def pool_layer(name: str, output: Any, inputs: Inputs, channel: int | None, patches: slice | None) -> Layer:
    tensor, n = next(tensors_of(output), None), len(inputs)
    if tensor is None or not tensor.is_floating_point() or tensor.ndim < 2 or len(tensor) != n:
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
