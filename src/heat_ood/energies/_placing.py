"""What is read from a file put into a detector, part by part, and checked whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..errors import InputError
from ._base import Energy
from ._calibration import Calibration
from ._encoding import decode

__all__ = ["by_names_of_today", "construct", "place", "validate"]


def construct(energy: Energy, prefix: str, facts: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """Build what ``fit`` would build, from the outside in."""
    inner = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    energy.build(decode(facts[prefix.removesuffix(".")]), inner)
    for name, child in energies_below(energy):
        construct(child, f"{prefix}{name}.", facts, tensors)


def energies_below(module: nn.Module) -> list[tuple[str, Energy]]:
    """The nearest energies inside a module."""
    found: list[tuple[str, Energy]] = []
    for name, child in module.named_children():
        if isinstance(child, Energy):
            found.append((name, child))
        else:
            found += [(f"{name}.{inner}", energy) for inner, energy in energies_below(child)]
    return found


def by_names_of_today(energy: Energy, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file of any version, by the names that they have now."""
    names: dict[str, str] = {}
    for prefix, module in energy.named_modules():
        if isinstance(module, Energy):
            start = f"{prefix}." if prefix else ""
            names |= {f"{start}{old}": f"{start}{new}" for old, new in module.former.items()}
    return {names.get(name, name): tensor for name, tensor in tensors.items()}


def place(energy: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put each tensor where it belongs; one too many, NaN, or a weight of another shape, is an error."""
    left = dict(tensors)
    broken = [name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.isnan().any()]
    if broken:
        raise InputError(f"NaN in {', '.join(broken[:3])}")
    for prefix, module in energy.named_modules():
        for name, buffer in list(module._buffers.items()):
            tensor = left.pop(f"{prefix}.{name}" if prefix else name, None)
            if tensor is not None:
                module._buffers[name] = tensor
            elif buffer is not None and name not in module._non_persistent_buffers_set:
                raise InputError(f"{prefix}.{name} is missing")
        for name, parameter in list(module._parameters.items()):
            tensor = left.pop(f"{prefix}.{name}" if prefix else name)
            if parameter is None or tensor.shape != parameter.shape or not tensor.is_floating_point():
                raise InputError(f"{prefix}.{name} is {tensor.dtype} of shape {tuple(tensor.shape)}")
            if not tensor.isfinite().all():
                raise InputError(f"{prefix}.{name} is not finite")
            module._parameters[name] = nn.Parameter(tensor, requires_grad=False)
    if left:
        raise InputError(f"it has tensors that no part of it knows: {', '.join(sorted(left)[:3])}")


def validate(energy: Energy) -> None:
    """Whether all parts agree in shape and kind, so that a score cannot fail later."""
    if not isinstance(energy.fingerprint, str | None):
        raise InputError(f"the fingerprint is {energy.fingerprint!r}")
    for module in energy.modules():
        if isinstance(module, Energy | Calibration):
            module.validate()
