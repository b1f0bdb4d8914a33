"""The engine: workers that hold a model, shards dealt out to them, and what is done when one of them fails."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import HeatError, InputError
from ..progress import sample_bar
from ._connection import connected
from ._outcome import Outcome, Retried
from ._worker import Busy, Failure, Version, Work, worker_class

__all__ = ["Engine"]

Prepare: TypeAlias = Callable[[], Work]
"""Called once by each worker: it loads what the work needs, and gives the function that does one shard."""
GLANCE = 0.2
"""Seconds between two looks at the workers."""
FEW = 3
"""So many shards must be done before their median tells how long one may take."""
LEAST = 60.0
"""Seconds that a shard may take in any case, unless ``time_limit`` says otherwise."""
SLOW = 10.0
"""A shard that takes so many times as long as the median is tried elsewhere."""
PAUSE = 1.0
"""Seconds before the second try of a shard; twice as many before each further one."""
MOST_STILLBORN = 10
"""So many workers may die one after the other before they begin."""
WAITS = 600
"""So often a shard that another process writes to is looked at again, before that counts as a failure."""


@dataclass
class _Hand:
    """A worker as the driver knows it."""

    actor: Any
    call: Any
    shard: int | None = None
    node: str = ""
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Engine:
    """Ray, as far as shards need it: actors that hold a model, a call for each shard, results in the shared folder.

    What fails is told apart. An error of the library (a corrupt image, other features than before) would come again:
    the shard is reported and the rest goes on. A worker or a node that dies, a full disk, a shard that takes far longer
    than the others: it is tried again, on another node where there is one. A shard must be resumable and end the same
    whoever does it, as :meth:`Extractor.extract` does; then nothing is lost and nothing counted twice.

    Args:
        address: of a Ray cluster, ``host:port`` or ``auto``; None starts Ray on this machine for the time of a run.
        workers: how many work at the same time; None is one for each CPU that the cluster has.
        cpus_per_worker: processors, and threads of torch, that a worker has.
        gpus_per_worker: GPUs that a worker has; a share where several use one.
        retries: so often a shard is tried again.
        time_limit: seconds that one shard may take before it is tried elsewhere; None is ten times the median of those
            that are done, at least a minute.
        start_limit: seconds that the first worker may take to start.
    """

    address: str | None = None
    workers: int | None = None
    cpus_per_worker: float = 1
    gpus_per_worker: float = 0
    retries: int = 3
    time_limit: float | None = None
    start_limit: float = 600.0

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers must be at least 1, not {self.workers}.")
        if self.cpus_per_worker <= 0 or self.gpus_per_worker < 0 or self.retries < 0:
            raise InputError("A worker needs a share of a CPU, and neither GPUs nor retries can be fewer than none.")
        if (self.time_limit is not None and self.time_limit <= 0) or self.start_limit <= 0:
            raise InputError("Limits of time are seconds, more than none.")

    def run(self, prepare: Prepare, shards: Iterable[int], *, title: str = "shards", progress: bool = True) -> Outcome:
        """Do each shard once, in whatever order; see :class:`Outcome` for what it gives.

        Interrupted, it ends its workers; shards that are done stay done.

        Args:
            prepare: called by each worker when it starts; it returns the function that does a shard by its number.
                Both must be importable on the workers, and what a shard returns be small: names and numbers.
            shards: their numbers.
            title: of the bar.
            progress: show a bar of shards, on a terminal.
        """
        numbers = list(dict.fromkeys(shards))
        most = self.workers or 1
        with connected(self.address, most * self.cpus_per_worker, most * self.gpus_per_worker) as ray:
            if self.workers is None:
                most = max(1, int(ray.cluster_resources().get("CPU", 1) // self.cpus_per_worker))
            with sample_bar(progress, title, len(numbers), unit="shards") as advance:
                run = _Run(self, ray, prepare, numbers, min(most, len(numbers)), advance)
                try:
                    return run.to_the_end()
                finally:
                    run.dismiss()


class _Run:
    """One run of an engine."""

    def __init__(
        self, engine: Engine, ray: Any, prepare: Prepare, shards: list[int], most: int, advance: Callable[[int], None]
    ) -> None:
        self.engine, self.ray, self.prepare, self.most, self.advance = engine, ray, prepare, most, advance
        self.waiting, self.hands = deque(shards), list[_Hand]()
        self.outcome, self.began, self.started = Outcome(), time.monotonic(), False
        self.stillborn = 0
        self.tries: dict[int, int] = defaultdict(int)
        self.waits: dict[int, int] = defaultdict(int)
        self.later: dict[int, float] = {}
        self.shunned: dict[int, set[str]] = defaultdict(set)
        self.trouble: dict[str, int] = defaultdict(int)
        self.times: list[float] = []
        self.maker = worker_class(ray).options(
            num_cpus=engine.cpus_per_worker,
            num_gpus=engine.gpus_per_worker,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )

    def to_the_end(self) -> Outcome:
        while self.waiting or self.later or any(hand.shard is not None for hand in self.hands):
            self.wake()
            self.hire()
            self.assign()
            calls = {hand.call: hand for hand in self.hands if hand.call is not None}
            if not calls:
                time.sleep(GLANCE)
            for call in self.ray.wait(list(calls), timeout=GLANCE)[0] if calls else ():
                self.answered(calls[call])
            self.hurry()
        self.outcome.seconds = time.monotonic() - self.began
        return self.outcome

    # Workers

    def hire(self) -> None:
        """As many workers as there is work for."""
        busy = sum(hand.shard is not None for hand in self.hands)
        wanted = min(self.most, busy + len(self.waiting) + len(self.later))
        while len(self.hands) < wanted:
            actor = self.maker.remote(self.prepare, self.engine.cpus_per_worker)
            self.hands.append(_Hand(actor, actor.hello.remote()))

    def dismiss(self) -> None:
        """End all workers; what a shard has done so far stays on the disk."""
        for hand in self.hands:
            self.ray.kill(hand.actor)
        self.hands.clear()

    def lose(self, hand: _Hand) -> None:
        self.ray.kill(hand.actor)
        self.hands.remove(hand)

    # Shards

    def wake(self) -> None:
        """Put back shards whose pause is over."""
        now = time.monotonic()
        for shard in [shard for shard, when in self.later.items() if when <= now]:
            del self.later[shard]
            self.waiting.append(shard)

    def assign(self) -> None:
        """A shard for each idle worker, on nodes where it has not failed as long as there are others."""
        for hand in [hand for hand in self.hands if hand.call is None]:
            for _ in range(len(self.waiting)):
                shard = self.waiting.popleft()
                if self.may(hand, shard):
                    hand.shard, hand.since = shard, time.monotonic()
                    hand.call = hand.actor.do.remote(shard)
                    break
                self.waiting.append(shard)
        working = sum(hand.shard is not None for hand in self.hands)
        self.outcome.most_workers = max(self.outcome.most_workers, working)

    def may(self, hand: _Hand, shard: int) -> bool:
        """Whether a shard may go to a worker's node: where it, or much else, has failed, only if there is no other."""
        nodes = {other.node for other in self.hands}  # one that is still to start may be anywhere
        poor = self.shunned[shard] | {node for node in nodes if node and self.trouble[node] > 1}
        return hand.node not in poor or nodes <= poor

    def answered(self, hand: _Hand) -> None:
        """What a worker said: that it is ready, that a shard is done, or what went wrong."""
        exceptions = self.ray.exceptions
        shard, call = hand.shard, hand.call
        try:
            answer = self.ray.get(call)
        except exceptions.RayTaskError as error:
            answer = Failure(f"{type(error.cause).__name__}: {error.cause}", final=False)
        except exceptions.RayError as error:
            self.lose(hand)
            self.stillborn += not hand.node
            if self.stillborn > MOST_STILLBORN:
                last = str(error).splitlines()[-1].strip()
                raise HeatError(
                    f"{self.stillborn} workers died before they could begin ({last}). See Ray's logs on the "
                    "nodes (/tmp/ray/session_latest/logs), and that heat-ood and the model can be imported there."
                ) from error
            self.retry(shard, f"its worker died ({type(error).__name__})", hand.node, shun=False)
            return
        hand.call, hand.shard = None, None
        if isinstance(answer, Version):
            self.welcome(hand, answer)
        elif isinstance(answer, Busy):
            self.postpone(shard, answer)
        elif isinstance(answer, Failure) and shard is None:
            raise HeatError(f"A worker on node {hand.node[:8] or 'unknown'} cannot begin. {answer.why}")
        elif isinstance(answer, Failure) and answer.final:
            self.finish(shard, failed=answer.why)
        elif isinstance(answer, Failure):
            self.trouble[hand.node] += 1
            self.retry(shard, answer.why, hand.node, shun=True)
        else:
            self.trouble[hand.node] = 0
            self.times.append(time.monotonic() - hand.since)
            self.finish(shard, answer)

    def welcome(self, hand: _Hand, version: Version) -> None:
        """A worker is ready, if it runs the same library."""
        from .. import __version__

        if version.library != __version__:
            raise HeatError(
                f"Node {version.node[:8]} has heat-ood {version.library}, and this is {__version__}. Install the same "
                "version on all machines of the cluster."
            )
        hand.node, self.started, self.stillborn = version.node, True, 0

    def finish(self, shard: int | None, result: Any = None, failed: str | None = None) -> None:
        assert shard is not None
        if failed is None:
            self.outcome.done[shard] = result
        else:
            self.outcome.failed[shard] = failed
        self.advance(1)

    def retry(self, shard: int | None, why: str, node: str, shun: bool) -> None:
        """Try a shard again, elsewhere if it can be; too often is a failure."""
        if shard is None:
            return
        self.tries[shard] += 1
        if shun:
            self.shunned[shard].add(node)
        if self.tries[shard] > self.engine.retries:
            self.finish(shard, failed=f"{why}; it was tried {self.tries[shard]} times")
            return
        self.outcome.retried.append(Retried(shard, why, node))
        self.later[shard] = time.monotonic() + PAUSE * 2 ** (self.tries[shard] - 1)

    def postpone(self, shard: int | None, busy: Busy) -> None:
        """Look again at a shard that another process is writing to: a worker of before, that has not quite ended."""
        assert shard is not None
        self.waits[shard] += 1
        if self.waits[shard] > WAITS:
            self.finish(shard, failed=busy.why)
        else:
            self.later[shard] = time.monotonic() + PAUSE

    # Time

    def hurry(self) -> None:
        """End workers that take too long for a shard, and complain where none starts at all."""
        limit, now = self.limit(), time.monotonic()
        for hand in list(self.hands):
            if hand.shard is not None and now - hand.since > limit:
                self.lose(hand)
                self.retry(hand.shard, f"it took longer than {limit:.0f} s", hand.node, shun=True)
        if not self.started and now - self.began > self.engine.start_limit:
            there = self.ray.cluster_resources()
            raise HeatError(
                f"No worker started within {self.engine.start_limit:.0f} s. Each asks for "
                f"{self.engine.cpus_per_worker:g} CPUs and {self.engine.gpus_per_worker:g} GPUs, and the cluster has "
                f"{there.get('CPU', 0):g} and {there.get('GPU', 0):g}. Ask for less, or wait until it is free."
            )

    def limit(self) -> float:
        if self.engine.time_limit is not None:
            return self.engine.time_limit
        return max(LEAST, SLOW * statistics.median(self.times)) if len(self.times) >= FEW else float("inf")
