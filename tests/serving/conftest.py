"""Guards to serve, and clients that ask: in this process, or of a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from heat_ood import HEAT
from heat_ood.guarding import LiveJudge, load
from heat_ood.serving import Settings, create_app
from serving_data import make_guard


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a guard, as ``heat-ood protect`` writes it."""
    path = tmp_path_factory.mktemp("serving") / "guard"
    make_guard(HEAT(residual=None), path)
    return path


@pytest.fixture(scope="session")
def judge(folder: Path) -> LiveJudge:
    return LiveJudge(load(folder))


@pytest.fixture
def ask() -> Iterator[Callable[..., TestClient]]:
    """A client of a judge's app, with settings by name; it lives as long as the test."""
    with ExitStack() as stack:

        def client(judge: Any, **settings: Any) -> TestClient:
            app = create_app(judge, Settings(**settings))
            return stack.enter_context(TestClient(app))

        yield client
