"""Stores of features for tests, and hands that change what their manifests say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from heat_ood.features import Features
from heat_ood.features._manifest import digest_of


def some(n: int = 6, dtype: torch.dtype = torch.float32, seed: int = 0) -> Features:
    """Two layers, labels and a head; ``avg@A`` and ``std`` have one shape, so that their files can be swapped."""
    g = torch.Generator().manual_seed(seed)

    def rand(width: int) -> torch.Tensor:
        return torch.rand(n, width, generator=g).to(dtype)

    return Features(
        avg=rand(4),
        std=rand(3),
        labels=torch.arange(n) % 2,
        head=(torch.rand(2, 4, generator=g), torch.rand(2, generator=g)),
        layers={"a.b/../c": (rand(5), rand(5)), "A": rand(2)},
        fingerprint="f" * 64,
    )


def same(a: Features, b: Features) -> bool:
    """Whether two feature sets hold the same numbers."""
    columns = list(a.columns) == list(b.columns) and all(torch.equal(a.columns[k], b.columns[k]) for k in a.columns)
    labels = (a.labels is None and b.labels is None) or torch.equal(a.labels, b.labels)
    heads = (a.head is None and b.head is None) or all(map(torch.equal, a.head, b.head))
    return columns and labels and heads and a.fingerprint == b.fingerprint


def edit(folder: Path, **changes: Any) -> None:
    """Change a manifest and give it a checksum that holds, as who can write files can."""
    content = json.loads((folder / "manifest.json").read_text()) | changes
    (folder / "manifest.json").write_text(json.dumps(content | {"sha256": digest_of(content)}, indent=1) + "\n")


def make_earlier(folder: Path, **changes: Any) -> None:
    """Make a manifest one of version 1, which had no checksums."""
    content = json.loads((folder / "manifest.json").read_text()) | {"version": 1} | changes
    content = {key: value for key, value in content.items() if key not in ("checksums", "sha256", "replaces")}
    (folder / "manifest.json").write_text(json.dumps(content, indent=1) + "\n")
