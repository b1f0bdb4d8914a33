"""The first pass through a model: every call is looked at, to find where the features flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ._batches import Inputs
from ._columns import Layer
from ._double import Stage
from ._heads import Candidate, find_head, linear_call, listing, outputs_of, reproduces
from ._maps import collapse, find_maps
from ._passes import called, conclude, pool_layer
from ._plan import Given, Plan, Reading, Site
from ._stages import Seen, find_stages
from ._tracing import Call, Node, Recorder, tensors_of

__all__ = ["probe_stages", "record"]


class Observer:
    """What the modules of a recorded pass read and return, and the layers among them."""

    def __init__(self, recorder: Recorder, inputs: Inputs, names: Sequence[str], head: str | None) -> None:
        self.recorder, self.inputs, self.names, self.head = recorder, inputs, frozenset(names), head
        self.layers: dict[str, Layer] = {}
        self.layouts: dict[str, tuple[int | None, slice | None]] = {}
        self.calls: dict[str, int] = {}
        self.inside = False  # the head that was named
        self._sites: dict[int, tuple[Node, Site]] = {}

    def enter(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        self.inside = self.inside or name == self.head
        self._note(name, True, (args, kwargs))

    def leave(self, name: str, output: Any) -> None:
        self.inside = self.inside and name != self.head
        self._note(name, False, output)
        if name in self.names:
            with self.recorder.pause():
                tensor = next(tensors_of(output), None)
                node = None if tensor is None else self.recorder.node(tensor)
                self.layouts[name] = (node.channel, node.patches) if node is not None else (None, None)
                self.layers[name] = pool_layer(name, output, self.inputs, *self.layouts[name])

    def _note(self, name: str, entering: bool, values: Any) -> None:
        """Where each tensor is found: best where the outermost module returns it."""
        for slot, tensor in enumerate(tensors_of(values)):
            if (node := self.recorder.node(tensor)) is not None and name:
                here = (node, Site(name, entering, slot))
                self._sites[id(node)] = self._sites.get(id(node), here) if entering else here

    def site_of(self, node: Node | None) -> Site | None:
        """Where a tensor goes into a module, or comes out of one, that is called once."""
        _, site = self._sites.get(id(node), (None, None))
        return site if site is not None and self.calls[site.module] == 1 else None


def record(
    stage: Stage, inputs: Inputs, names: Sequence[str], head: nn.Module | Given | bool | None, half: bool
) -> tuple[Plan, Reading | None]:
    """A pass that finds out where the features flow; its reading is None where a second pass must pool the maps.

    Args:
        stage: where the pass takes place.
        inputs: one batch.
        names: the layers to read.
        head: as :class:`Extractor` has it; a module is one of the network's.
        half: whether the model computes in half precision.
    """
    n = len(inputs)
    candidates: list[Candidate] = []
    stds: dict[int, Tensor | None] = {}
    given = head if isinstance(head, tuple) else None
    own = {id(p) for p in head.parameters()} if isinstance(head, nn.Module) else set()
    modules = {module: name for name, module in stage.network.named_modules()}

    def watch(call: Call, node: Node) -> None:
        if (maps := collapse(node)) is not None and maps.position == call.position:
            stds[call.position] = maps.pool(call.tensors[maps.slot], inputs.mask).std
        if given is not None:
            if call.output.numel() == n * given[0].shape[1] and node.shape[0] == n and call.output.is_floating_point():
                z = call.output.detach().reshape(n, -1).clone()
                candidates.append(Candidate(call.position, call.name, node, z, *given))
        elif (found := linear_call(call.name, call.args, call.kwargs, n)) is not None and node.sources[0][0] == 0:
            z, weight, bias = found
            named = observer.inside or any(id(t) in own for t in call.tensors[1:])
            candidates.append(Candidate(call.position, call.name, node.sources[0][1], z.clone(), weight, bias, named))

    recorder = Recorder(inputs.tensors, watch)
    observer = Observer(recorder, inputs, names, modules[head] if isinstance(head, nn.Module) else None)
    before = torch.get_rng_state()
    with stage.listening(observer, [name for name in modules.values() if name]), recorder:
        output = called(stage.model, inputs)
    if missing := [name for name in names if name not in observer.layers]:
        raise InputError(
            f"The layer {missing[0]!r} took no part in this pass. Name modules that the model calls in evaluation mode."
        )

    outputs = outputs_of(output, n)
    plan = Plan(recorder.position, None, given=given, layers=observer.layouts)
    plan.draws = inputs.tensors[0].device.type != "cpu" or not torch.equal(before, torch.get_rng_state())
    linear = None
    if head is False or (
        given is not None and not any(reproduces(c(), v, half) for c in candidates for v in outputs.values())
    ):
        plan.output = features_among(outputs, given)
        end = recorder.node(next(t for t in tensors_of(output) if t.data_ptr() == outputs[plan.output].data_ptr()))
    else:
        if isinstance(head, nn.Module) and not any(c.named for c in candidates):
            raise InputError(
                "The head that was named maps no single vector a sample to logits in this pass. "
                f"{listing(stage.network)} Name one of them."
            )
        chosen, plan.output = find_head(stage.network, candidates, outputs, half)
        plan.site, end = (chosen.position, chosen.name), chosen.node
        linear = (chosen.z, chosen.weight, chosen.bias)
        plan.features_at = observer.site_of(end)
        plan.head = given or own_tensors(stage.network, chosen.weight, chosen.bias)
    plan.maps = None if end is None else find_maps(end)
    if plan.maps is not None:
        plan.maps_at = observer.site_of(plan.maps.source)
        plan.maps = replace(plan.maps, source=None)
    plan.direct = (
        (plan.site is None or None not in (plan.features_at, plan.head))
        and (plan.maps is None or plan.maps_at is not None)
        and all(observer.calls[name] == 1 for name in names)
    )

    if plan.maps is not None and plan.maps.position not in stds:
        return plan, None
    std = None if plan.maps is None else stds[plan.maps.position]
    return plan, conclude(plan, outputs, linear, std, observer.layers, half)


def own_tensors(model: nn.Module, weight: Tensor, bias: Tensor | None) -> Given | None:
    """The model's own parameters that a head's call read; None where it read what was computed from them."""
    tensors = [*model.parameters(), *model.buffers()]

    def own(view: Tensor) -> Tensor | None:
        return next((t for t in tensors if t.data_ptr() == view.data_ptr() and t.numel() == view.numel()), None)

    first, second = own(weight), None if bias is None else own(bias)
    return None if first is None or (bias is not None and second is None) else (first, second)


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


class Shapes:
    """The shapes of what modules return."""

    def __init__(self, recorder: Recorder, n: int) -> None:
        self.recorder, self.n, self.seen = recorder, n, dict[str, Seen]()

    def enter(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Nothing is asked of what goes in."""

    def leave(self, name: str, output: Any) -> None:
        tensor = next(tensors_of(output), None)
        node = None if tensor is None else self.recorder.node(tensor)
        if node is not None and node.channel is not None and node.learned and node.shape[0] == self.n:
            shape = list(node.shape)
            self.seen.pop(name, None)
            self.seen[name] = Seen(shape.pop(node.channel), tuple(shape[1:]))


def probe_stages(stage: Stage, inputs: Inputs) -> tuple[str, ...]:
    """The names of the stages, by what each module returns."""
    recorder = Recorder(inputs.tensors)
    shapes = Shapes(recorder, len(inputs))
    with stage.listening(shapes, [name for name, _ in stage.network.named_modules() if name]), recorder:
        called(stage.model, inputs)
    return find_stages(stage.network, shapes.seen)
