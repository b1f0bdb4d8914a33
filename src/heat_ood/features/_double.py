"""A model's double: the same tensors and code in modules of its own, which a pass may read without touching the model.

A hook on the user's module would be seen by every thread that calls the model, and its mode is one for all of them. A
double has neither problem: it stays in evaluation mode, what it tells goes to the thread that called it, and the
model is left as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

__all__ = ["Double", "Listener", "Original", "Stage", "frozen", "precision", "reaches"]

LOCK = threading.Lock()
"""Held for moments, never during a pass."""
HELD: dict[nn.Module, list[Any]] = {}
"""Modules that passes keep in evaluation mode: the mode that they had, and how many passes there are."""


class Listener(Protocol):
    """What is told of the modules of one pass."""

    def enter(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A module is about to be called."""

    def leave(self, name: str, output: Any) -> None:
        """A module was called."""


class Stage(Protocol):
    """Where a pass takes place: ``model`` is called, ``network`` is the user's own."""

    model: nn.Module
    network: nn.Module

    def listening(self, listener: Listener, names: Iterable[str]) -> Any:
        """A context in which the listener is told of these modules, in this thread alone."""


class Double:
    """The double of a network.

    Args:
        network: what it is the double of.
        names: the modules that a listener may be told of; None is all of them.

    Parameters, buffers, hooks and all other attributes are the network's own objects, so what changes in them is seen;
    an attribute that is set anew is not.
    """

    def __init__(self, network: nn.Module, names: Iterable[str] | None = None) -> None:
        self.network, self._local = network, _Local()
        self.twins = twins_of(network)
        self.model = self.twins[network]
        self.tell(names)

    def tell(self, names: Iterable[str] | None) -> None:
        """Let these modules tell who listens, and no others."""
        by_name = dict(self.network.named_modules())
        of_twin: dict[nn.Module, list[str]] = {}
        for name in by_name if names is None else names:
            of_twin.setdefault(self.twins[by_name[name]], []).append(name)
        for twin in self.twins.values():
            twin.__dict__.pop("_call_impl", None)
        for twin, own in of_twin.items():
            self._tell(twin, tuple(own))

    def _tell(self, twin: nn.Module, names: tuple[str, ...]) -> None:
        """Let one module tell; hooks, which are the network's own, stay as they are."""
        local = self._local
        plain: Any = type(twin)._call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            listener = local.listener
            if listener is None:
                return plain(twin, *args, **kwargs)
            for name in names:
                listener.enter(name, args, kwargs)
            output = plain(twin, *args, **kwargs)
            for name in names:
                listener.leave(name, output)
            return output

        twin.__dict__["_call_impl"] = call

    @contextmanager
    def listening(self, listener: Listener, names: Iterable[str] = ()) -> Iterator[None]:
        before, self._local.listener = self._local.listener, listener
        try:
            yield
        finally:
            self._local.listener = before

    @contextmanager
    def alone(self) -> Iterator[list[nn.Module]]:
        """A list of the network's own modules that are called in this block: a double that is faithful calls none."""
        found, thread = list[nn.Module](), threading.get_ident()

        def seen(module: nn.Module, _: Any) -> None:
            if module in self.twins and threading.get_ident() == thread:
                found.append(module)

        with LOCK:
            handle = register_module_forward_pre_hook(seen)
        try:
            yield found
        finally:
            with LOCK:
                handle.remove()


class _Local(threading.local):
    listener: Listener | None = None


def twins_of(network: nn.Module) -> dict[nn.Module, nn.Module]:
    """For each module of a network one of the same class that shares all but its mode and its children."""
    originals = list(network.modules())
    twins: dict[nn.Module, nn.Module] = {m: object.__new__(type(m)) for m in originals}
    for module in originals:  # compiled parts are run as they were written
        inner = module._modules.get("_orig_mod")
        if isinstance(inner, nn.Module):
            twins[module] = twins[inner]
    for module in originals:
        if isinstance(module._modules.get("_orig_mod"), nn.Module):
            continue
        own = {name: of_double(value, twins) for name, value in module.__dict__.items()}
        own["_modules"] = {n: None if child is None else twins[child] for n, child in module._modules.items()}
        own |= {"training": False, "_compiled_call_impl": None}
        twins[module].__dict__.update(own)
    return twins


def of_double(value: Any, twins: Mapping[nn.Module, nn.Module]) -> Any:
    """An attribute as the double has it: a module, or a method of one, is the double's."""
    if isinstance(value, nn.Module):
        return twins.get(value, value)
    if isinstance(value, MethodType) and isinstance(value.__self__, nn.Module) and value.__self__ in twins:
        return MethodType(value.__func__, twins[value.__self__])
    return value


HOOKS = frozenset(name for name in nn.Module().__dict__ if "hook" in name)
DEPTH = 4


def reaches(network: nn.Module) -> bool:
    """Whether a module holds another one otherwise than as its child, where a double would call the model's own.

    Looked for in what an attribute holds: containers, functions with what they enclose, partial calls. What else there
    may be is seen when the first pass calls it.
    """
    modules = frozenset(network.modules())
    return any(
        holds(value, modules, DEPTH)
        for module in modules
        for name, value in module.__dict__.items()
        if name not in HOOKS and name != "_modules" and not isinstance(value, nn.Module | MethodType)
    )


def holds(value: Any, modules: frozenset[nn.Module], depth: int) -> bool:
    if isinstance(value, nn.Module):
        return value in modules
    if not depth or isinstance(value, torch.Tensor | str | bytes | int | float | None):
        return False
    if isinstance(value, Mapping):
        inner: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif isinstance(value, partial):
        inner = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        inner = (value.__self__,)
    elif isinstance(value, FunctionType):
        cells = (cell.cell_contents for cell in value.__closure__ or () if filled(cell))
        inner = (*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    else:
        return False
    return any(holds(one, modules, depth - 1) for one in inner)


def filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class Original:
    """The network itself, for what no double stands for: a module that others reach by a way of their own.

    Args:
        network: it is put into evaluation mode for each pass, and hooks tell who listens.
        device: where it is.
        autocast: the half precision that it computes in.
    """

    def __init__(self, network: nn.Module, device: torch.device, autocast: torch.dtype | None = None) -> None:
        self.model = self.network = network
        self.device, self.autocast = device, autocast

    @contextmanager
    def listening(self, listener: Listener, names: Iterable[str]) -> Iterator[None]:
        thread = threading.get_ident()

        def enter(name: str, args: Any) -> None:
            if threading.get_ident() == thread:
                listener.enter(name, args, {})

        def leave(name: str, output: Any) -> None:
            if threading.get_ident() == thread:
                listener.leave(name, output)

        handles: list[Any] = []
        with ExitStack() as stack:
            stack.enter_context(frozen(self.model, self.device, self.autocast))
            stack.callback(release, handles)
            with LOCK:
                for name in names:  # hooks without keywords, which a call that has begun can do with when they are gone
                    module = self.model.get_submodule(name)
                    handles += [
                        module.register_forward_pre_hook(lambda _m, args, name=name: enter(name, args)),
                        module.register_forward_hook(lambda _m, _i, output, name=name: leave(name, output)),
                    ]
            yield


def release(handles: Iterable[Any]) -> None:
    with LOCK:
        for handle in handles:
            handle.remove()


@contextmanager
def frozen(model: nn.Module, device: torch.device, autocast: torch.dtype | None = None) -> Iterator[None]:
    """Evaluation mode, no gradient, and everything as it was when done: modes, random states.

    A model that several passes hold at once gets its modes back when the last of them is done.
    """
    modules = list(model.modules())
    devices = [device] if device.type == "cuda" else []
    with ExitStack() as stack:
        hold(modules)
        stack.callback(let_go, modules)
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.no_grad())
        stack.enter_context(precision(device, autocast))
        yield


def precision(device: torch.device, autocast: torch.dtype | None = None) -> AbstractContextManager[Any]:
    """Compute in this half precision, or in none: a surrounding ``torch.autocast`` is left outside."""
    kind = device.type
    if autocast is None and not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        return nullcontext()
    return torch.autocast(kind, dtype=autocast, enabled=autocast is not None)


def hold(modules: Iterable[nn.Module]) -> None:
    with LOCK:
        for module in modules:
            held = HELD.setdefault(module, [module.training, 0])
            held[1] += 1
            module.training = False


def let_go(modules: Iterable[nn.Module]) -> None:
    with LOCK:
        for module in modules:
            held = HELD[module]
            held[1] -= 1
            if not held[1]:
                module.training = module.training or held[0]
                del HELD[module]
