"""Saved detectors, for all tests of saving."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from heat_ood import HEAT, Energy
from storage_data import THREE, VARIANTS, fitted, quick


@pytest.fixture(scope="module")
def made() -> dict[str, Energy]:
    return {name: make() for name, make in VARIANTS.items()}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One calibrated HEAT with residuals, as files."""
    folder = tmp_path_factory.mktemp("saved") / "detector"
    fitted(HEAT(THREE, residual=quick(steps=1)), per_class=True).save(folder)
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "copy")
    return tmp_path / "copy"
