"""A model whose features are read, as ``torch.export`` can follow it: one pass, nothing looked at, nothing verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ._batches import Inputs
from ._double import Listener, Stage
from ._extractor import Extractor
from ._passes import tap
from ._plan import FlowError, Plan

__all__ = ["Readable", "readable_graph"]


class Held:
    """A stage on which somebody listens already, and passes on what it hears."""

    def __init__(self, stage: Stage) -> None:
        self.model, self.network = stage.model, stage.network
        self._listener: Listener | None = None

    def enter(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._listener is not None:
            self._listener.enter(name, args, kwargs)

    def leave(self, name: str, output: Any) -> None:
        if self._listener is not None:
            self._listener.leave(name, output)

    @contextmanager
    def listening(self, listener: Listener, names: Iterable[str]) -> Iterator[None]:
        before, self._listener = self._listener, listener
        try:
            yield
        finally:
            self._listener = before


class Readable(nn.Module):
    """A batch in; the model's logits and the columns that were asked for out.

    It is the model itself, read where the features flow, without what a pass does around it.
    """

    def __init__(self, stage: Held, plan: Plan, columns: Iterable[str], half: bool) -> None:
        super().__init__()
        self.model = stage.model
        self.columns, self._read = tuple(columns), (stage, plan, half)

    def forward(self, inputs: Tensor) -> tuple[Tensor | None, dict[str, Tensor]]:
        stage, plan, half = self._read
        try:
            reading = tap(stage, Inputs((inputs,), {}), plan, half, verify=False)
        except FlowError as error:
            raise InputError(
                "The model takes another way where it is made a graph, so its features cannot be read there. Export "
                "the detector alone, and let the model run where it is."
            ) from error
        found = reading.columns
        return reading.logits, {name: found[name] for name in self.columns}


@contextmanager
def readable_graph(extractor: Extractor, inputs: Tensor, columns: Iterable[str]) -> Iterator[Readable]:
    """A model that ``torch.export`` can follow, in this thread and in this block; afterwards it is as it was.

    Args:
        extractor: reads it.
        inputs: a batch, to find where the features flow.
        columns: the features that are wanted, by the names that energies use.
    """
    plan, stage, half = extractor.flow(Inputs((inputs,), {}))
    held = Held(stage)
    with torch.no_grad(), stage.listening(held, plan.tapped):
        yield Readable(held, plan, columns, half).eval()
