"""The engine, on two real nodes: what fails is tried elsewhere or reported, nothing is lost, nothing done twice."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from heat_ood.errors import HeatError, InputError
from heat_ood.scale import Engine, Outcome, ShardsError
from ray_nodes import Nodes
from shard_work import CORRUPT, FLAKY, KILLED, LOCKED, POISON, STRAGGLER, prepare


def run(nodes: Nodes, folder: Path, kind: str = "", shards: int = 10, **settings: Any) -> Outcome:
    engine = Engine(nodes.address, workers=2, **settings)
    return engine.run(functools.partial(prepare, folder, kind), range(shards), progress=False)


def tries(folder: Path, shard: int) -> list[str]:
    return (folder / f"tries-{shard}").read_text().split()


def done(folder: Path) -> set[int]:
    return {int(file.name.removeprefix("done-")) for file in folder.glob("done-*")}


def test_each_shard_is_done_once_on_both_nodes(nodes: Nodes, tmp_path: Path) -> None:
    outcome = run(nodes, tmp_path, "wait for all", 6).check()
    assert done(tmp_path) == set(outcome.done) == set(range(6))
    assert (outcome.samples, outcome.retried, outcome.most_workers) == (60, [], 2)
    used = [tries(tmp_path, i) for i in range(6)]
    assert all(len(nodes_of) == 1 for nodes_of in used)
    assert len({node for nodes_of in used for node in nodes_of}) == 2


def test_what_fails_is_tried_again_or_reported_and_the_rest_finishes(nodes: Nodes, tmp_path: Path) -> None:
    outcome = run(nodes, tmp_path, "trouble", time_limit=3.0, retries=1)
    assert done(tmp_path) == set(outcome.done) == set(range(10)) - {CORRUPT, POISON}
    assert set(outcome.failed) == {CORRUPT, POISON}
    assert outcome.failed[CORRUPT] == "two.jpg is no image. Leave it out with --skip-unreadable."
    assert "its worker died" in outcome.failed[POISON]
    assert "tried 2 times" in outcome.failed[POISON]

    again = {retried.shard: retried.why for retried in outcome.retried}
    assert set(again) == {KILLED, STRAGGLER, FLAKY, POISON}
    assert len(outcome.retried) == 4
    assert "its worker died" in again[KILLED]
    assert "longer than 3 s" in again[STRAGGLER]
    assert "CUDA error" in again[FLAKY]
    twice = {KILLED, STRAGGLER, LOCKED, FLAKY, POISON}
    assert {shard: len(tries(tmp_path, shard)) for shard in range(10)} == {s: 1 + (s in twice) for s in range(10)}
    assert len(set(tries(tmp_path, STRAGGLER))) == 2  # on the other node
    assert "tried again: it took longer" in str(outcome)
    with pytest.raises(ShardsError, match=r"2 of 10 shards failed.*two\.jpg is no image"):
        outcome.check()


def test_a_full_disk_on_one_node_leaves_the_work_to_the_other(nodes: Nodes, tmp_path: Path) -> None:
    full = nodes.others[-1].node_id
    (tmp_path / "full").write_text(full)
    outcome = run(nodes, tmp_path, "full disk", 30).check()
    assert done(tmp_path) == set(range(30))
    assert all("No space left on device" in r.why and r.node == full for r in outcome.retried)
    assert len(outcome.retried) <= 2  # then the node gets no more work


def test_workers_that_cannot_begin_are_an_error_at_once(nodes: Nodes, tmp_path: Path) -> None:
    with pytest.raises(HeatError, match=r"cannot begin\. There is no model"):
        run(nodes, tmp_path, "no model")


@pytest.mark.parametrize(
    "settings", [{"workers": 0}, {"cpus_per_worker": 0}, {"retries": -1}, {"time_limit": 0.0}, {"gpus_per_worker": -1}]
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Engine(**settings)
