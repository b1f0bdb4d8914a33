"""Checksums as an attacker would compute them anew, one function a format; what has none yet is left as it is.

A forged file is one whose checksums hold. That these functions keep up with the formats is tested in
``test_harness.py``: a harmless edit, sealed, must be accepted.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .documents import Pairs, dump, parse
from .tensors import Tensors, pack, unpack

__all__ = ["SEALS"]

HEADER, END = 128, 4096
"""Of an ``.npy`` file of ours: the bytes before the numbers, and what counts as an end of them."""
TORCH = {"F64": "torch.float64", "F32": "torch.float32", "F16": "torch.float16", "BF16": "torch.bfloat16"}
TORCH |= {"I64": "torch.int64", "I32": "torch.int32", "I16": "torch.int16", "I8": "torch.int8"}
TORCH |= {"U8": "torch.uint8", "BOOL": "torch.bool"}
"""What torch calls the kinds of safetensors."""


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def content_digest(document: Pairs, key: str = "sha256") -> str:
    """As manifests are signed: SHA-256 of the JSON without the checksum, its keys in order."""
    plain = json.loads(dump(document))
    return sha(json.dumps({k: v for k, v in plain.items() if k != key}, sort_keys=True).encode())


def put(document: Pairs, key: str, value: Any) -> None:
    for i, (name, _) in enumerate(document):
        if name == key:
            document[i] = (name, value)


def get(document: Any, key: str) -> Any:
    found = [value for name, value in document if name == key] if isinstance(document, Pairs) else []
    return found[-1] if found else None


def ordinary(file: Path) -> bool:
    """Whether it can be read: no link, pipe or folder, and not of terabytes."""
    return file.is_file() and not file.is_symlink() and file.stat().st_size < 2**26


def named(folder: Path, name: Any) -> Path | None:
    """The file that a manifest names, if it lies in the folder and can be read."""
    inside = isinstance(name, str) and 0 < len(name) < 200 and not {"/", "\0"} & set(name) and name.isprintable()
    return folder / name if inside and ordinary(folder / name) else None


def read(file: Path) -> Pairs | None:
    """A manifest, if it is one that can be sealed."""
    try:
        if not ordinary(file):
            return None
        document = parse(file.read_text(encoding="utf-8"))
        json.loads(dump(document))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, Pairs) else None


def seal_detector(folder: Path) -> None:
    """The tensors are called by their digest, the manifest names it, and is signed itself."""
    manifest = read(folder / "detector.json")
    if manifest is None:
        return
    entry, name = get(manifest, "tensors"), get(get(manifest, "tensors"), "file")
    file = named(folder, name)
    if file is not None:
        digest = sha(file.read_bytes())
        if re.fullmatch(r"tensors-[0-9a-f]{16}\.safetensors", str(name)):
            file.rename(folder / f"tensors-{digest[:16]}.safetensors")
            put(entry, "file", f"tensors-{digest[:16]}.safetensors")
        put(entry, "sha256", digest)
    put(manifest, "sha256", content_digest(manifest))
    (folder / "detector.json").write_text(dump(manifest), encoding="utf-8")


def seal_store(folder: Path) -> None:
    """Of each file the numbers are summed, without its header: all of them, and both ends; the manifest is signed."""
    manifest = read(folder / "manifest.json")
    if manifest is None:
        return
    sums = get(manifest, "checksums")
    for name, entry in sums if isinstance(sums, Pairs) else ():
        file = named(folder, name)
        if file is not None and isinstance(entry, Pairs):
            numbers = file.read_bytes()[HEADER:]
            put(entry, "sha256", sha(numbers))
            put(entry, "ends", zlib.crc32(numbers[-END:], zlib.crc32(numbers[:END])))
    put(manifest, "sha256", content_digest(manifest))
    (folder / "manifest.json").write_text(rendered(manifest), encoding="utf-8")


def rendered(document: Pairs) -> str:
    """As a manifest is written, to the byte, unless a key stands twice."""
    text = json.dumps(json.loads(dump(document)), indent=1) + "\n"
    return text if dump(parse(text)) == dump(document) else dump(document)


def seal_checkpoint(folder: Path) -> None:
    """The metadata of each file holds a digest of all else in it, and of its tensors."""
    for file in folder.glob("*.safetensors"):
        try:
            tensors, about = unpack(file.read_bytes() if ordinary(file) else b"")
            if about.pop("sha256", None) is not None:
                file.write_bytes(pack(tensors, {**about, "sha256": tensor_digest(tensors, about)}))
        except (struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue  # what cannot be read cannot be sealed


def tensor_digest(tensors: Tensors, about: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(about.items())).encode())
    for name, (kind, shape, data) in sorted(tensors.items()):
        digest.update(json.dumps([name, TORCH[kind], shape]).encode())
        digest.update(data)
    return digest.hexdigest()


def seal_guard(folder: Path) -> None:
    """The detector is; the model's weights are known by the fingerprint."""
    seal_detector(folder / "detector")


SEALS: dict[str, Callable[[Path], None]] = {
    "detector": seal_detector,
    "store": seal_store,
    "checkpoint": seal_checkpoint,
    "guard": seal_guard,
}
