"""Watch what flows through a model: every function call on what derives from its input, seen as it happens.

Modules do not tell the whole story: a ReLU, a pooling or a reshape is often a plain function call. A
:class:`~torch.overrides.TorchFunctionMode` sees modules and functions alike, and leaves nothing behind.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["Call", "Counter", "Node", "Recorder", "tensors_of"]

CHANNELS_FIRST = re.compile(r"conv|batch_norm|instance_norm|group_norm|_pool\dd|interpolate|pixel_|prelu")
CHANNELS_LAST = {"linear", "rms_norm", "embedding", "multi_head_attention_forward"}
RESHAPES = {"flatten", "view", "reshape", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"}
REDUCTIONS = {"mean", "sum", "amax", "max", "logsumexp", "nanmean", "median", "std", "var", "norm"}


@dataclass(slots=True, eq=False)
class Node:
    """A tensor that derives from the model's input, and how it was made; its values are not kept."""

    position: int
    name: str
    shape: tuple[int, ...]
    sources: tuple[tuple[int, Node], ...] = ()  # (which tensor argument, its node)
    channel: int | None = None  # the dimension of the channels, where the flow tells
    patches: slice | None = None  # of tokens: those that are neither class token nor register
    learned: bool = False  # some parameter had a say
    reduced: tuple[int, ...] = ()  # dimensions of the first source that a reduction takes away
    selected: int | None = None  # the token that an index picks

    @property
    def positions(self) -> int:
        """How many positions a channel has; 1 where the layout is unknown."""
        if self.channel is None or len(self.shape) < 3:
            return 1
        return int(torch.Size(self.shape[1:]).numel() // max(self.shape[self.channel], 1))


@dataclass(slots=True)
class Call:
    """One function call, about to return: what a watcher may look at."""

    position: int
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: list[Tensor]
    output: Any


class Counter(TorchFunctionMode):
    """Number the calls that return tensors; a position names the same call in every pass of the same flow."""

    def __init__(self) -> None:
        super().__init__()
        self.position = 0
        self._paused = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        name = plain_name(func)
        with self.pause():
            self.before(name, args, kwargs)
        output = func(*args, **kwargs)
        if isinstance(output, Tensor) or (isinstance(output, (tuple, list)) and not isinstance(output, torch.Size)):
            with self.pause():
                self.after(name, args, kwargs, output)
            self.position += 1
        elif name == "setitem" and isinstance(args[0], Tensor):
            with self.pause():
                self.after(name, args, kwargs, args[0])
        return output

    def before(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Called before each function, while the arguments are as they flow in."""

    def after(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Called after each function that returns tensors."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Our own computations are not part of the flow."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before


class Recorder(Counter):
    """Record how every tensor derives from the inputs, and call ``watch`` with each call and its node.

    Tensors are referred to weakly: recording a forward pass needs no more memory than the pass itself.
    """

    def __init__(self, inputs: Iterable[Tensor], watch: Callable[[Call, Node], None] | None = None) -> None:
        super().__init__()
        self._nodes: dict[int, tuple[weakref.ref[Tensor], Node]] = {}
        self._watch = watch
        for tensor in inputs:
            self._remember(tensor, Node(-1, "input", tuple(tensor.shape)))

    def node(self, tensor: Tensor) -> Node | None:
        """How this tensor was made, if it derives from the inputs."""
        reference, node = self._nodes.get(id(tensor), (None, None))
        return node if reference is not None and reference() is tensor else None

    def _remember(self, tensor: Tensor, node: Node) -> None:
        self._nodes[id(tensor)] = (weakref.ref(tensor), node)

    def after(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        tensors = list(tensors_of((args, kwargs)))
        sources = tuple((slot, node) for slot, t in enumerate(tensors) if (node := self.node(t)) is not None)
        if not sources:
            return
        learned = any(node.learned for _, node in sources) or any(isinstance(t, nn.Parameter) for t in tensors)
        for tensor in tensors_of(output):
            node = Node(self.position, name, tuple(tensor.shape), sources, learned=learned)
            describe_layout(node, args, kwargs)
            self._remember(tensor, node)
            if self._watch is not None and isinstance(output, Tensor):
                self._watch(Call(self.position, name, args, kwargs, tensors, output), node)


def describe_layout(node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Fill in what the call tells about channels, tokens and reduced dimensions."""
    source, ndim = node.sources[0][1], len(node.shape)
    node.channel = channel_after(node, source, args, kwargs)
    node.patches = patches_after(node, args, kwargs)
    if node.name in REDUCTIONS:
        node.reduced = dimensions(
            kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else None)), len(source.shape)
        )
    elif (re.search(r"_pool\dd", node.name) or covers(node, args)) and all(size == 1 for size in node.shape[2:]):
        node.reduced = tuple(range(2, len(source.shape)))
    elif node.name == "getitem" and isinstance(args[1], tuple) and len(args[1]) > 1 and isinstance(args[1][1], int):
        node.selected = args[1][1]
    elif node.name == "select" and len(source.shape) == 3 and ndim == 2:
        dim, index = kwargs.get("dim", args[1] if len(args) > 1 else None), kwargs.get("index", args[-1])
        node.selected = index if dim in (1, -2) and isinstance(index, int) else None


def covers(node: Node, args: tuple[Any, ...]) -> bool:
    """Whether this is a convolution as large as the map it reads, of more than one position."""
    if not node.name.startswith("conv") or len(args) < 2 or not isinstance(args[1], Tensor):
        return False
    kernel = tuple(args[1].shape[2:])
    return kernel == node.sources[0][1].shape[2:] and max(kernel) > 1


def channel_after(node: Node, source: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    ndim, name = len(node.shape), node.name
    if ndim < 3:
        return None
    if CHANNELS_FIRST.search(name):
        return 1
    if name in CHANNELS_LAST or (
        name == "layer_norm" and len(kwargs.get("normalized_shape", args[1:2] and args[1])) == 1
    ):
        return ndim - 1
    if source.channel is None and name in RESHAPES | {"permute", "transpose"}:
        return None
    if name == "permute":
        given = kwargs.get("dims", args[1] if len(args) == 2 else args[1:])
        return list(dimensions(given, ndim)).index(source.channel)  # type: ignore[arg-type]
    if name in ("transpose", "swapaxes"):
        a, b = dimensions(tuple(args[1:3]) or (kwargs["dim0"], kwargs["dim1"]), ndim)
        return {a: b, b: a}.get(source.channel, source.channel)  # type: ignore[arg-type]
    if name in RESHAPES:
        for old, new in ((1, 1), (len(source.shape) - 1, ndim - 1)):
            if source.channel == old and source.shape[old] == node.shape[new]:
                return new
        return None
    alike = (s for _, s in node.sources if len(s.shape) == ndim and s.channel is not None)
    return next((s.channel for s in alike if s.shape == node.shape or name in ("cat", "getitem")), None)


def patches_after(node: Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> slice | None:
    if len(node.shape) != 3:
        return None
    if node.name == "cat" and dimensions(kwargs.get("dim", args[1] if len(args) > 1 else 0), 3) == (1,):
        parts = list(tensors_of(args[0] if args else kwargs["tensors"]))
        largest = max(range(len(parts)), key=lambda i: parts[i].shape[1])
        start = sum(part.shape[1] for part in parts[:largest])
        after = sum(part.shape[1] for part in parts[largest + 1 :])
        return slice(start, -after or None)  # whatever the size of a batch's images
    return next((s.patches for _, s in node.sources if s.patches is not None and s.shape[:2] == node.shape[:2]), None)


def dimensions(dim: Any, ndim: int) -> tuple[int, ...]:
    """One or several dimensions, counted from the front; empty if none are given."""
    if dim is None or isinstance(dim, (bool, Tensor)):
        return ()
    return tuple(d % ndim for d in ((dim,) if isinstance(dim, int) else dim) if isinstance(d, int))


def plain_name(func: Any) -> str:
    """``relu_`` and ``__getitem__`` are ``relu`` and ``getitem``."""
    return str(getattr(func, "__name__", func)).strip("_")


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in arguments or results, however nested."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
