"""Which modules are the stages of a network: the blocks after which its resolution or width changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from torch import nn

from ..errors import Argument, InputError

__all__ = ["Seen", "find_stages"]


class Seen(NamedTuple):
    """What a module returned: how many channels, and the sizes of the other dimensions."""

    width: int
    resolution: tuple[int, ...]


def find_stages(model: nn.Module, seen: Mapping[str, Seen]) -> tuple[str, ...]:
    """Names of the stages, given what each module with maps or tokens returned, in the order of execution.

    The stages are the children of the module whose blocks differ most in width and resolution. Where none
    differ, four evenly spaced blocks of the longest chain stand for them, the last included; in a transformer, whose
    blocks are alike, all of them where there are fewer. A plain chain of layers gives the last layer of each
    resolution.
    """
    families = [children for name, _ in model.named_modules() if (children := blocks_of(model, name, seen))]
    chain = chain_of_tokens(model, families, seen)
    families = [names for names in families if not names[0].startswith(tuple(f"{block}." for block in chain))]
    richest = max(families, key=lambda names: len({seen[n] for n in names}), default=[])
    longest = max(families, key=len, default=[])
    distinct = len({seen[n] for n in richest})
    if distinct < 3 and chain:
        return evenly(chain)
    if distinct < 3 and len(longest) >= 4:
        return evenly(longest)
    leaves = [n for n in seen if not list(model.get_submodule(n).children()) and max(seen[n].resolution) > 1]
    names = last_of_each(leaves, {n: seen[n].resolution for n in leaves})
    if distinct >= 3 or (distinct == 2 and len(names) < 3):
        return last_of_each(without_stem(model, richest), {n: seen[n] for n in richest})
    if not names:
        raise InputError(
            "No module of this model returns maps or tokens, so it has no stages. Leave out ",
            Argument("layers", "stages"),
            ", or name modules.",
        )
    return names


def blocks_of(model: nn.Module, name: str, seen: Mapping[str, Seen]) -> list[str]:
    """The children of a module that are blocks themselves, in the order of execution."""
    prefix = f"{name}." if name else ""
    children = {
        prefix + child for child, module in model.get_submodule(name).named_children() if list(module.children())
    }
    return [n for n in seen if n in children]


def chain_of_tokens(model: nn.Module, families: Sequence[Sequence[str]], seen: Mapping[str, Seen]) -> Sequence[str]:
    """The longest sequence of blocks of one class that return tokens of one shape: the layers of a transformer."""

    def alike(names: Sequence[str]) -> bool:
        parent = model.get_submodule(names[0].rpartition(".")[0])
        listed = isinstance(parent, nn.ModuleList) or (isinstance(parent, nn.Sequential) and len(names) > 1)
        kinds = {(type(model.get_submodule(name)), seen[name]) for name in names}
        return listed and len(kinds) == 1 and len(seen[names[0]].resolution) == 1

    return max(filter(alike, families), key=len, default=[])


def evenly(names: Sequence[str], count: int = 4) -> tuple[str, ...]:
    """At most so many, evenly spaced, the last included."""
    count = min(count, len(names))
    return tuple(names[round(len(names) * i / count) - 1] for i in range(1, count + 1))


def without_stem(model: nn.Module, names: Sequence[str]) -> Sequence[str]:
    """Leave out a first block that only prepares the input: a single convolution, or one that is called so."""
    first = model.get_submodule(names[0])
    weights = [p for p in first.parameters() if p.ndim > 1]
    title = names[0].rsplit(".", 1)[-1]
    return names[1:] if len(weights) <= 1 or "stem" in title or title in ("conv1", "patch_embed") else names


def last_of_each(names: Sequence[str], keys: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(list(group)[-1] for _, group in groupby(names, key=keys.__getitem__))
