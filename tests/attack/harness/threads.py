"""Many threads on one guard: every answer is that of a single thread, and the model is as it was."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from heat_ood import HeatError, create, protect

from . import networks

__all__ = ["MODELS", "attack_model"]

THREADS, BROKEN = 8, 10
"""How many at once; one call in so many is given what the model refuses."""
TOLERANCE = 1e-5


def images(n: int, seed: int) -> Tensor:
    return torch.rand(n, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def guarded(model: nn.Module, layers: Any = "stages") -> Any:
    train, held = ([(images(60, seed), torch.arange(60) % 3)] for seed in (1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector = create("gmm-joint")
        return protect(model, train, held, detector=detector, layers=layers, progress=False)


def plain() -> list[Any]:
    return [guarded(networks.plain().eval())]


def residual() -> list[Any]:
    """In training mode, with statistics that a pass in that mode would change."""
    return [guarded(networks.Residual().train())]


def transformer() -> list[Any]:
    return [guarded(networks.Tokens().eval(), ("blocks.0",))]


def shared() -> list[Any]:
    """Two models with one first block, each guarded; one in training mode."""
    first = networks.plain()
    second = networks.plain(stem=first[0], seed=1)
    return [guarded(first.train()), guarded(second.train())]


def compiled() -> list[Any]:
    return [guarded(torch.compile(networks.plain().eval()))]


MODELS: dict[str, Callable[[], list[Any]]] = {
    "convolutions with BatchNorm": plain,
    "residual, in training mode": residual,
    "transformer": transformer,
    "two that share a block": shared,
    "compiled": compiled,
}


def state_of(guards: list[Any]) -> list[Any]:
    """All that a call could change: modes, parameters, buffers, hooks, gradients asked for, random numbers."""
    found: list[Any] = [torch.get_rng_state().tolist()]
    for guard in guards:
        for name, module in guard.model.named_modules():
            hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
            found.append((name, module.training, [len(h) for h in hooks]))
        for name, tensor in (*guard.model.named_parameters(), *guard.model.named_buffers()):
            found.append((name, tensor.requires_grad, tensor.detach().double().sum().item(), tensor.shape))
    return found


class Tally:
    """What the calls of all threads came to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.right = self.wrong = self.errors = self.raised = 0
        self.notes: list[str] = []

    def add(self, name: str, note: str = "") -> None:
        with self.lock:
            setattr(self, name, getattr(self, name) + 1)
            if note and len(self.notes) < 5:
                self.notes.append(note)


def agree(found: Any, expected: Any) -> bool:
    return all(
        torch.allclose(torch.as_tensor(a).double(), torch.as_tensor(b).double(), rtol=TOLERANCE, atol=TOLERANCE)
        for a, b in zip(found, expected, strict=True)
    )


def attack_model(name: str, calls: int, threads: int = THREADS, patience: float = 600.0) -> dict[str, Any]:
    """So many calls in each of so many threads; what hangs is counted as an error."""
    guards = MODELS[name]()
    batches = [images(n, 100 + n) for n in (1, 1, 2, 3, 5, 8)]
    expected = [[guard(batch) for batch in batches] for guard in guards]
    bad, before, tally = torch.rand(2, 5, 16, 16), state_of(guards), Tally()
    start = threading.Barrier(threads)

    def work(number: int) -> None:
        start.wait()
        for i in range(calls):
            which, k = (number + i) % len(guards), (number * 7 + i) % len(batches)
            try:
                if (number + i) % BROKEN == 0:
                    guards[which](bad)
                    tally.add("wrong", "what the model cannot take was answered")
                    continue
                found = guards[which](batches[k])
            except HeatError as error:
                clear = (number + i) % BROKEN == 0
                tally.add("raised" if clear else "errors", "" if clear else f"{type(error).__name__}: {error}")
            except Exception as error:
                tally.add("errors", f"{type(error).__name__}: {error}")
            else:
                right = agree(found, expected[which][k])
                tally.add("right" if right else "wrong", "" if right else "another answer than that of one thread")

    pool = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(threads)]
    for thread in pool:
        thread.start()
    deadline = time.monotonic() + patience
    for thread in pool:
        thread.join(max(0.0, deadline - time.monotonic()))
    hung = sum(thread.is_alive() for thread in pool)
    changed = [a for a, b in zip(state_of(guards), before, strict=True) if a != b]
    return {
        "model": name,
        "threads": threads,
        "calls": threads * calls,
        "right": tally.right,
        "wrong": tally.wrong,
        "errors": tally.errors + hung,
        "raised": tally.raised,
        "untouched": "yes" if not changed else "no",
        "notes": tally.notes + [str(change)[:200] for change in changed[:3]],
    }
