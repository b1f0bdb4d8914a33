"""Where the features of a model flow: found in the first pass, kept as long as the model stays what it is."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ._batches import Inputs
from ._double import Double, Original, Stage, frozen, reaches
from ._passes import tap
from ._plan import FlowError, Plan, Reading
from ._weights import Weights

if TYPE_CHECKING:
    from ._extractor import Extractor

__all__ = ["Tracker"]

ATTEMPTS = 3
"""So often the way of the features is looked for again where a model takes another one."""


@dataclass(frozen=True)
class Flow:
    """Where the features of a model flow, found for its weights as they were; no pass writes to it."""

    weights: Weights
    plan: Plan
    stage: Stage


class Tracker:
    """Read a model's features in any number of threads; what a pass reads belongs to the call."""

    def __init__(self) -> None:
        self._weights: Weights | None = None
        self._flow: Flow | None = None
        self._finding = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy finds the way anew."""
        return Tracker, ()

    @property
    def flow(self) -> Flow:
        """Where the features flowed in the last pass."""
        assert self._flow is not None
        return self._flow

    def weights_of(self, network: nn.Module) -> Weights:
        """A model's tensors, looked at again where a part of it was exchanged."""
        known = self._weights
        if known is not None and known.current(network):
            return known
        with self._finding:
            if self._weights is not known and self._weights is not None:
                return self.weights_of(network)  # another thread was first
            found, flow = Weights(network), self._flow
            if known is not None and found.alike(known):  # an attribute was set
                found.take_over(known)
                if flow is not None and flow.weights is known:
                    stage = Double(network, flow.plan.tapped) if isinstance(flow.stage, Double) else flow.stage
                    self._flow = Flow(found, flow.plan, stage)
            self._weights = found
            return found

    def read(
        self,
        extractor: Extractor,
        weights: Weights,
        inputs: Inputs,
        device: torch.device,
        maps: dict[str, Tensor] | None = None,
    ) -> Reading:
        """One pass; the first one finds where the features flow. The layers go into ``maps`` unpooled."""
        half = extractor.autocast is not None or weights.half
        for _ in range(ATTEMPTS):
            flow = self._flow
            if flow is not None and flow.weights is weights:
                try:
                    with random_state(device) if flow.plan.draws else nullcontext():
                        return tap(flow.stage, inputs, flow.plan, half, maps)
                except FlowError:
                    pass
            with self._finding, random_state(device):  # the first pass alone: all others run side by side
                if self._flow is flow or self._flow is None:
                    self._flow, reading = find(extractor, weights, inputs, device, half)
                    if reading is not None and maps is None:
                        return reading
        raise InputError(
            "The model takes another way at every call, so its features cannot be followed. Switch off what is "
            "random in its forward."
        )


def find(
    extractor: Extractor, weights: Weights, inputs: Inputs, device: torch.device, half: bool
) -> tuple[Flow, Reading | None]:
    """Where the features flow, by a pass through a double; where there can be none, through the model itself."""
    network = extractor.network
    if not reaches(network):
        double = Double(network)
        try:
            with frozen(network, device, extractor.autocast), double.alone() as others:
                plan, reading = extractor.recorded(double, inputs, half)
                plan.direct = plan.direct and directly(double, inputs, plan, half, reading)
        except Exception:  # what is wrong with the model or the batch itself is said below
            others = [network]
        if not others:
            double.tell(plan.tapped)
            return Flow(weights, plan, double), reading
    original = Original(network, device, extractor.autocast)
    plan, reading = extractor.recorded(original, inputs, half)
    plan.direct = plan.direct and directly(original, inputs, plan, half, reading)
    return Flow(weights, plan, original), reading


def directly(stage: Stage, inputs: Inputs, plan: Plan, half: bool, recorded: Reading | None) -> bool:
    """Whether a direct pass reads the same, to the last bit: some modules compute otherwise when they are looked at."""
    try:
        expected = recorded or tap(stage, inputs, replace(plan, direct=False), half)
        return tap(stage, inputs, plan, half).same(expected)
    except FlowError:
        return False


def random_state(device: torch.device) -> Any:
    """A block after which the random state is what it was."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
