"""The weights of a model: their fingerprint, and whether they are still what they were."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["Weights", "digest_of"]

SAMPLED = 64
"""So many numbers of a tensor are looked at, evenly spaced."""
EACH_CALL = 2
"""So many tensors are looked at in each pass, in turn; all of them once in ``INTERVAL``."""
INTERVAL = 1.0
"""Seconds."""
SCATTER = 7919
"""Tensors are taken in steps of a prime, so that neighbours do not follow each other."""


class Kept(NamedTuple):
    """A fingerprint, and what the tensors were when it was made."""

    fingerprint: str
    state: tuple[Any, ...]
    samples: list[Tensor | None]


class Weights:
    """A network's modules and tensors as they were found, to be compared with what they are now.

    Torch counts changes of a tensor, but not those made through ``.data`` or NumPy. Those are looked for in a sample:
    some numbers of two tensors in each pass, and of all tensors once a second. A single number that changes can pass
    unseen; :meth:`Extractor.compute_fingerprint` reads all.

    """

    def __init__(self, network: nn.Module) -> None:
        self.modules = list(network.modules())
        self.named = [(name, t) for name, t in (*network.named_parameters(), *network.named_buffers())]
        self.tensors = [t for _, t in self.named]
        self.counting = [t for t in self.tensors if not t.is_inference()]
        self.modes: list[int] = []  # where the modes stand among the attributes; they may change
        start = 0
        for module in self.modules:
            self.modes += [start + i for i, name in enumerate(module.__dict__) if name == "training"]
            start += len(module.__dict__)
        self.structure, self.attributes = self.look()
        self.kept = [list(module.__dict__.values()) for module in self.modules]  # a new object cannot have its number
        self.half = any(t.dtype in (torch.float16, torch.bfloat16) for t in network.parameters())
        self.device = self.tensors[0].device if self.tensors else None
        self._kept = Kept("", (), [])
        self._calls, self._looked = count(), 0.0

    def look(self) -> tuple[list[int], list[int]]:
        """The numbers of all objects that make the model: its parts and tensors; all other attributes but modes."""
        structure: list[int] = []
        attributes: list[int] = []
        for module in self.modules:
            own = module.__dict__
            attributes.extend(map(id, own.values()))
            for part in (own["_modules"], own["_parameters"], own["_buffers"]):
                if part:
                    structure.extend(map(id, part.values()))
        if len(attributes) > self.modes[-1]:
            for position in self.modes:
                attributes[position] = 0
        return structure, attributes

    def current(self, network: nn.Module) -> bool:
        """Whether the network is the one that was found, no part of it exchanged and no attribute set."""
        return self.modules[0] is network and self.look() == (self.structure, self.attributes)

    def fingerprint(self) -> str | None:
        """The fingerprint; None where the tensors are not what they were when it was made, as far as is looked at."""
        kept = self._kept
        same = bool(kept.fingerprint) and kept.state == self.state() and self._same_samples(kept.samples)
        return kept.fingerprint if same else None

    def state(self) -> tuple[Any, ...]:
        """Where each tensor lies, and how often it was changed."""
        return [t._version for t in self.counting], [t.data_ptr() for t in self.tensors]

    def keep(self, fingerprint: str) -> str:
        """Remember the fingerprint, and what the tensors are now."""
        self._kept = Kept(fingerprint, self.state(), [sample_of(t) for t in self.tensors])
        self._looked = time.monotonic()
        return fingerprint

    def alike(self, other: Weights) -> bool:
        """Whether both are of the same modules and tensors."""
        return self.modules == other.modules and self.structure == other.structure

    def take_over(self, other: Weights) -> None:
        """What is known of the same tensors."""
        self._kept, self._looked = other._kept, other._looked

    def _same_samples(self, samples: Sequence[Tensor | None]) -> bool:
        if not self.tensors:
            return True
        now, size = time.monotonic(), len(self.tensors)
        if now - self._looked >= INTERVAL:
            self._looked = now
            chosen: Iterable[int] = range(size)
        else:
            first = next(self._calls) * EACH_CALL
            chosen = [(first + i) * SCATTER % size for i in range(min(EACH_CALL, size))]
        return all(same(samples[i], sample_of(self.tensors[i])) for i in chosen)


def sample_of(tensor: Tensor) -> Tensor | None:
    """The bytes of some numbers of a tensor, on the CPU; None of a kind whose numbers cannot be had one by one."""
    try:
        tensor = tensor.detach()
        size = tensor.numel()
        dense = tensor.is_contiguous() or (tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
        flat = tensor.as_strided((size,), (1,)) if dense else tensor.reshape(-1)
        return flat[:: max(1, size // SAMPLED)].to("cpu", copy=True).view(torch.uint8)
    except (RuntimeError, NotImplementedError):
        return None


def same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is None or other is None or torch.equal(one, other)


def digest_of(what: Any, tensors: Sequence[tuple[str, Tensor | None]]) -> str:
    """SHA-256 of a text and of named tensors: shapes, types and all bytes."""
    digest = hashlib.sha256(repr(what).encode())
    for name, tensor in tensors:
        if tensor is not None:
            digest.update(repr((name, tuple(tensor.shape), str(tensor.dtype))).encode())
            digest.update(bytes_of(tensor))
    return digest.hexdigest()


def bytes_of(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return np.ascontiguousarray(flat.view(torch.uint8).numpy()).tobytes() if flat.numel() else b""
