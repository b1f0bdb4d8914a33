"""What became of the shards of one run: done, failed, and what was tried again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import HeatError

__all__ = ["Outcome", "Retried", "ShardsError"]

SHOWN = 20
"""So many tries and failures are told one by one."""


class Retried(NamedTuple):
    """One try of a shard that came to nothing, and why."""

    shard: int
    why: str
    node: str

    def __str__(self) -> str:
        return f"shard {self.shard} was tried again: {self.why} (node {self.node[:8] or 'unknown'})"


@dataclass
class Outcome:
    """What a run did.

    Args:
        done: what each shard gave, by its number.
        failed: why a shard has no result, by its number.
        retried: the tries that came to nothing, in the order in which that was seen.
        seconds: how long it took.
        most_workers: so many worked at the same time.
    """

    done: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    retried: list[Retried] = field(default_factory=list)
    seconds: float = 0.0
    most_workers: int = 0

    @property
    def samples(self) -> int:
        """How many samples the shards say that they did."""
        return sum(result.get("samples", 0) for result in self.done.values() if isinstance(result, Mapping))

    def check(self) -> Outcome:
        """Itself, where every shard has a result; else an error that says which have none, and why."""
        if self.failed:
            raise ShardsError(self)
        return self

    def __str__(self) -> str:
        """In a sentence or more.

        Example:
            >>> print(Outcome({0: {"samples": 9}}, {}, [Retried(0, "its worker died", "ab")], 2.0, 1))
            1 shard is done, 9 samples in 2.0 s by 1 worker at most; 1 try came to nothing.
            shard 0 was tried again: its worker died (node ab)
        """
        done, tries = len(self.done), len(self.retried)
        text = f"{done} shard{' is' if done == 1 else 's are'} done"
        text += f", {self.samples:,} samples" if self.samples else ""
        text += f" in {self.seconds:.1f} s by {self.most_workers} worker{'' if self.most_workers == 1 else 's'} at most"
        text += f"; {tries} tr{'y' if tries == 1 else 'ies'} came to nothing" if tries else ""
        text += f"; {len(self.failed)} failed" if self.failed else ""
        lines = [*map(str, self.retried), *(f"shard {number} failed: {why}" for number, why in self.failed.items())]
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        return "\n".join([f"{text}.", *lines[:SHOWN], *more])


class ShardsError(HeatError, RuntimeError):
    """Some shards have no result; the others have theirs, and ``outcome`` says what became of each."""

    def __init__(self, outcome: Outcome) -> None:
        shown = list(outcome.failed.items())[:5]
        more = f" and {len(outcome.failed) - len(shown)} more" if len(outcome.failed) > len(shown) else ""
        lines = "; ".join(f"shard {number}: {why}" for number, why in shown)
        super().__init__(
            f"{len(outcome.failed)} of {len(outcome.failed) + len(outcome.done)} shards failed, the others are done. "
            f"{lines}{more}. Mend what they name and run again: what is done is not done twice."
        )
        self.outcome = outcome
