"""Hostile requests to a service: damaged images and features, bodies that lie, and what is no request at all."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import NamedTuple

import numpy as np
from PIL import Image

from .damage import damage_bytes

__all__ = ["KINDS", "Sent", "request_of"]

COLUMNS = {"logits": 3, "avg": 8, "std": 8}
"""What the served guard reads."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
DRAWN = 400
"""Valid images that others are made of."""
TYPES = (
    "image/png",
    "image/jpeg",
    "application/octet-stream",
    "application/json",
    "application/x-npy",
    "text/html",
    "",
)


class Sent(NamedTuple):
    """The bytes of a whole request, and whether its client goes away at once."""

    content: bytes
    leaves: bool = False


def framed(rng: random.Random, body: bytes, kind: str, path: str = "/v1/score") -> Sent:
    """A request around a body, most often with its right length."""
    start = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
    way = rng.random()
    if way < 0.85:
        return Sent(f"{start}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    if way < 0.95:
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for i in range(0, len(body), 700) if (p := body[i : i + 700]))
        return Sent(f"{start}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n")
    return Sent(f"{start}Content-Length: {len(body) + rng.randrange(1, 9999)}\r\n\r\n".encode() + body, True)


def picture(rng: random.Random) -> bytes:
    """A valid image of any kind."""
    return drawn(rng.randrange(DRAWN))


@cache
def drawn(number: int) -> bytes:
    rng = random.Random(number)
    size = (rng.randrange(1, 64), rng.randrange(1, 64))
    pixels = np.frombuffer(rng.randbytes(size[0] * size[1] * 3), np.uint8).reshape(size[1], size[0], 3)
    stream, kind = io.BytesIO(), rng.choice(FORMATS)
    mode = rng.choice(("RGB", "RGB", "L", "1", "RGB" if kind in ("JPEG", "PPM") else "P"))
    options = {"progressive": rng.random() < 0.5} if kind == "JPEG" else {}
    Image.fromarray(pixels).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def array(rng: random.Random, width: int, rows: int = 2) -> bytes:
    stream = io.BytesIO()
    values = np.random.default_rng(rng.randrange(2**32)).normal(size=(rows, width))
    np.save(stream, values.astype(rng.choice(("<f4", "<f4", "<f8", "<f2", ">f4", rng.choice(("<i8", "<c16"))))))
    return stream.getvalue()


def damaged(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """Changed in none, one or several ways."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        content, _way = damage_bytes(rng, content, other)
    return content


def image(rng: random.Random) -> Sent:
    return framed(rng, damaged(rng, picture(rng), picture(rng)), rng.choice(TYPES[:3]))


def multipart(rng: random.Random, features: bool = False) -> Sent:
    parts = []
    for name, width in COLUMNS.items() if features else [(f"f{i}", 0) for i in range(rng.randrange(1, 4))]:
        content = array(rng, width) if features else picture(rng)
        content = damaged(rng, content, content) if rng.random() < 0.5 else content
        end = "npy" if features else "png"
        head = f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="{name}.{end}"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    body = b"".join(parts) + b"--b--\r\n"
    return framed(rng, damaged(rng, body, body) if rng.random() < 0.5 else body, "multipart/form-data; boundary=b")


def arrays(rng: random.Random) -> Sent:
    return multipart(rng, features=True)


VALUES = (0, 1.5, -3, 1e308, 1e39, float("nan"), float("inf"), None, True, "1", [], {}, [[]], 10**400, "\ud800")


def columns(rng: random.Random) -> Sent:
    """JSON with odd values at odd places, now and then with damaged bytes."""
    rows = rng.randrange(1, 4)
    found: dict[str, object] = {name: [[0.5] * width for _ in range(rows)] for name, width in COLUMNS.items()}
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice([*COLUMNS, "other"])
        value = deepcopy(rng.choice(VALUES))
        rows_of = found.get(name)
        if isinstance(rows_of, list) and rows_of and isinstance(rows_of[0], list) and rng.random() < 0.6:
            rows_of[0][:1] = [value]
        else:
            found[name] = value
    body = json.dumps({"features": found} if rng.random() < 0.9 else found).encode()
    return framed(rng, damaged(rng, body, body) if rng.random() < 0.4 else body, "application/json")


def confused(rng: random.Random) -> Sent:
    """Something, said to be something else; with a query of any kind."""
    body = rng.choice((picture(rng), array(rng, 8), rng.randbytes(200), b"[" * 5000, b"{}"))
    query = rng.choice(("", "?fpr=0.1", "?fpr=5e-324", "?fpr=nan", "?fpr=1e400", "?fpr=&fpr=2", "?%ff=%00", "?fpr=0.5"))
    return framed(rng, body, rng.choice(TYPES), f"/v1/score{query}")


def asked(rng: random.Random) -> Sent:
    """Other paths and methods, and headers of all kinds."""
    names = (
        "/",
        "/v1/info",
        "/v1/drift",
        "/v1/recent",
        "/metrics",
        "/samples",
        "/samples/-1",
        "/page/../x",
        "/healthz",
    )
    path = rng.choice((*names, "/%00", "/" + "a" * 3000, "*", "//", "/v1/score/", "/page/%2e%2e/x", "/samples/1e9"))
    method = rng.choice(("GET", "GET", "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "POST", "X" * 50))
    extra = rng.choice(
        ("", "Authorization: Bearer x\r\n", "Accept: \xff\r\n", "Range: bytes=0-1\r\n", "Upgrade: h2c\r\n")
    )
    length = "Content-Length: 0\r\n" if method in ("POST", "PUT") else ""
    return Sent(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}{length}\r\n".encode("latin-1"), method == "HEAD")


def torn(rng: random.Random) -> Sent:
    """Damage to the request itself: its client does not wait for ever, since there may be no answer."""
    whole = framed(rng, picture(rng), "image/png").content
    return Sent(damage_bytes(rng, whole[: rng.randrange(20, len(whole))], whole)[0], True)


KINDS: dict[str, tuple[Callable[[random.Random], Sent], int]] = {
    "images": (image, 45),
    "multipart": (multipart, 15),
    "arrays": (arrays, 10),
    "JSON": (columns, 14),
    "confused": (confused, 8),
    "asked": (asked, 5),
    "torn": (torn, 3),
}
"""By name: what makes a request, and how many in a hundred there are."""


def request_of(number: int, seed: int) -> tuple[str, Sent]:
    """The same for the same number and seed."""
    rng = random.Random(f"{seed}:{number}")
    (kind,) = rng.choices(list(KINDS), [share for _, share in KINDS.values()])
    return kind, KINDS[kind][0](rng)
