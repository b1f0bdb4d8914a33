"""Edits of safetensors, ``.npy`` and ``.npz`` files that keep their structure: shapes, kinds, names, values."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from .documents import edit_json

__all__ = ["edit_npy", "edit_npz", "edit_safetensors", "pack", "unpack"]

Tensors = dict[str, tuple[str, list[int], bytes]]
"""By name: kind, shape, bytes."""
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


class Evil:
    """A pickle that, loaded, leaves a file ``canary``; see :mod:`harness.tries`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ('touch "$HEAT_OOD_CANARY"',)


# safetensors


def unpack(content: bytes) -> tuple[Tensors, dict[str, str]]:
    """The tensors of a valid file, and its metadata."""
    (size,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    metadata = header.pop("__metadata__", {})
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()
    }, metadata


def pack(tensors: Tensors, metadata: dict[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def special(rng: random.Random, kind: str) -> bytes:
    """One value that arithmetic does not like."""
    floats = {"F64": "<d", "F32": "<f", "F16": "<e"}
    if kind in floats:
        most = {"F64": 1.7e308, "F32": 3.4e38, "F16": 65504.0}[kind]
        return struct.pack(
            floats[kind], rng.choice([float("nan"), float("inf"), -float("inf"), most, -most, 0.0, -1.0])
        )
    size = SIZES.get(kind, 1)
    return rng.choice([0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 1]).to_bytes(size, "little")


def poke(rng: random.Random, tensors: Tensors, name: str) -> str:
    kind, shape, data = tensors[name]
    size, value = SIZES.get(kind, 1), special(rng, kind)
    count = len(data) // size
    chosen = range(count) if rng.random() < 0.3 else [rng.randrange(count)] if count else []
    out = bytearray(data)
    for i in chosen:
        out[i * size : (i + 1) * size] = value
    tensors[name] = kind, shape, bytes(out)
    return f"{name} has {value.hex()}"


def reshape(rng: random.Random, tensors: Tensors, name: str) -> str:
    kind, shape, data = tensors[name]
    count = len(data) // SIZES.get(kind, 1)
    shape = rng.choice([shape[::-1], [count], [1, *shape], [*shape, 1], [0], [count, 1], [2**62, 2**62]])
    tensors[name] = kind, shape, data if 0 not in shape else b""
    return f"{name} is {shape}"


def recast(rng: random.Random, tensors: Tensors, name: str) -> str:
    """The same bytes as another kind."""
    kind, shape, data = tensors[name]
    new = rng.choice([k for k in SIZES if k != kind])
    if SIZES[new] != SIZES.get(kind, 1):
        shape = [len(data) // SIZES[new]]
        data = data[: shape[0] * SIZES[new]]
    tensors[name] = new, shape, data
    return f"{name} is {new}"


def resize(rng: random.Random, tensors: Tensors, name: str) -> str:
    """More rows, or fewer."""
    kind, shape, data = tensors[name]
    if not shape or not shape[0]:
        return reshape(rng, tensors, name)
    row, rows = len(data) // shape[0], rng.choice([0, 1, shape[0] - 1, shape[0] + 1, 2 * shape[0], 2000])
    tensors[name] = kind, [rows, *shape[1:]], (data * (rows // shape[0] + 1))[: rows * row]
    return f"{name} has {rows} rows"


def forget(rng: random.Random, tensors: Tensors, name: str) -> str:
    del tensors[name]
    return f"without {name}"


def rename(rng: random.Random, tensors: Tensors, name: str) -> str:
    new = rng.choice([name + "x", "", name.replace(".", "/"), "calibration.scores", "a" * 1000, "\x1b[31m"])
    tensors[new] = tensors.pop(name)
    return f"{name} is called {new[:40]!r}"


def double(rng: random.Random, tensors: Tensors, name: str) -> str:
    tensors[f"{name}.{rng.randrange(9)}"] = tensors[name]
    return f"{name} twice"


def trade(rng: random.Random, tensors: Tensors, name: str) -> str:
    other = rng.choice(list(tensors))
    tensors[name], tensors[other] = tensors[other], tensors[name]
    return f"{name} and {other} change places"


EDITS: tuple[Callable[[random.Random, Tensors, str], str], ...] = (
    poke, poke, poke, reshape, recast, resize, forget, rename, double, trade,
)  # fmt: skip


def edit_safetensors(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    """A safetensors file with its header or its tensors edited, and what was done."""
    tensors, metadata = unpack(content)
    if not tensors or rng.random() < 0.2:
        (size,) = struct.unpack("<Q", content[:8])
        text, what = edit_json(rng, content[8 : 8 + size].decode())
        raw = text.encode("utf-8", "surrogatepass")
        length = rng.choice([len(raw), len(raw), size, 2**40, 2**63])
        return struct.pack("<Q", length) + raw + content[8 + size :], f"header: {what}"
    if metadata and rng.random() < 0.3:
        key = rng.choice(list(metadata))
        metadata[key], what = edit_json(rng, metadata[key])
        if what == "no JSON":
            metadata[key] = rng.choice(["", "x", metadata[key][:-1]])
        return pack(tensors, metadata), f"metadata {key}: {what}"
    times = min(len(tensors), rng.choice([1, 1, 2]))
    done = [rng.choice(EDITS)(rng, tensors, rng.choice(list(tensors))) for _ in range(times)]
    return pack(tensors, metadata), ", ".join(done)


# npy and npz


def edit_npy(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    """An ``.npy`` file with its header or its values edited, and what was done."""
    if content[:6] != b"\x93NUMPY" or len(content) < 10:
        return content, "no npy"
    size = int.from_bytes(content[8:10], "little")
    text, data = content[10 : 10 + size].decode("latin1"), content[10 + size :]
    kind = rng.random()
    if kind < 0.1:
        evil = io.BytesIO()
        import numpy as np

        np.save(evil, np.array([Evil(), None], dtype=object), allow_pickle=True)
        return evil.getvalue(), "a pickle"
    if kind < 0.4 and data:
        width = next((w for name, w in (("f8", 8), ("i8", 8), ("f4", 4), ("f2", 2)) if name in text), 1)
        kinds = {8: "F64" if "f8" in text else "I64", 4: "F32", 2: "F16", 1: "U8"}
        value = special(rng, kinds[width])
        at = width * rng.randrange(max(1, len(data) // width))
        return content[: 10 + size] + data[:at] + value + data[at + width :], f"value {value.hex()} at {at}"
    text, what = edit_header(rng, text)
    raw = text.encode("latin1", "replace")
    fixed = raw[:-1].ljust(size - 1)[: size - 1] + b"\n" if rng.random() < 0.6 else raw
    version = rng.choice([b"\x01\x00", b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x09\x07"])
    length = min(len(fixed), 65535).to_bytes(2, "little") if version[0] == 1 else len(fixed).to_bytes(4, "little")
    return b"\x93NUMPY" + version + length + fixed + data, f"header: {what}"


def edit_header(rng: random.Random, text: str) -> tuple[str, str]:
    swaps = (
        ("False", "True"), ("<f4", "<f8"), ("<f4", ">f4"), ("<f4", "|O"), ("<f4", "<U9"), ("<f4", "x"), ("<i8", "<u8"),
        ("(", "(9999999999, "), ("(", "(-1, "), ("(", "("), ("(", "(0, "), ("(", "((("), ("(", "(" * 5000),
        ("'shape'", "'Shape'"), ("{", "{{"), ("}", ""), ("'descr'", "'descr': __import__('os'), 'x'"), (":", "="),
        ("|u1", "<u8"), ("|u1", "|O"), ("|u1", "|V1000000000"), (", ", ",\0"), ("'", '"""'), (", ", ", 1_0, "),
    )  # fmt: skip
    old, new = rng.choice([pair for pair in swaps if pair[0] in text])
    return text.replace(old, new, 1), f"{old} → {new[:20]}"


def edit_npz(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    """An ``.npz`` archive whose members, or their names, are edited, and what was done."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    kind, what = rng.random(), ""
    if kind < 0.7:
        members[name], what = edit_npy(rng, members[name])
    elif kind < 0.8:
        members[name + rng.choice(["x", "/../x", "\x1b[31m"])] = members.pop(name)
        what = "renamed"
    elif kind < 0.9:
        members[name] = pickle.dumps(Evil())
        what = "a pickle alone"
    else:
        members = {}
        what = "nothing inside"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member), data)  # which has no time, so that tries can be repeated
    return out.getvalue(), f"{name}: {what}"
