"""Two real Ray nodes for all tests of this room."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from heat_ood.scale._connection import connected
from ray_nodes import Nodes, ray_nodes, within


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """A head and one more; a test that kills one adds another."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no Ray: pip install 'heat-ood[ray]'")
    with ray_nodes() as found, connected(found.address, 0, 0):
        yield found


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """No test of this room may hang."""
    with within(90):
        yield
