"""From the body of a request to samples: images are decoded and prepared, features are checked."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import HeatError
from ..guarding import Judge
from ..images import Preprocessing, cause_of, decode_stream
from ._arrays import checked, from_json, from_npy
from ._multipart import File, files_of
from ._refusals import RefusedError
from ._samples import PIXELS, Floats, Part, Samples
from ._settings import Settings

__all__ = ["TYPES", "reader"]

JSON, NPY, MULTIPART = "application/json", "application/x-npy", "multipart/form-data"
TYPES = ("image/*", "application/octet-stream", MULTIPART, JSON, NPY)
"""The content types that are read."""
RUN_LENGTHS = (b"\x01", b"\x02")
"""How a BMP says that it is compressed. Pillow decodes these, and all of PPM's kinds but one, in Python: some megabytes
of numbers as text take it minutes, in which every other thread waits."""

Read = Callable[[str, bytes, Callable[[int], None]], Samples]
"""Of a content type and a body; told how many samples there are before any is decoded."""


def reader(judge: Judge, settings: Settings) -> Read:
    """What reads the uploads that a judge can judge."""
    preprocessing, columns = judge.preprocessing, judge.columns

    def read(content_type: str, body: bytes, count: Callable[[int], None]) -> Samples:
        kind = content_type.partition(";")[0].strip().lower()
        if not body:
            raise RefusedError(400, "The body is empty. Send an image, several, or features.")
        if kind == JSON:
            return features(from_json(body))
        if kind == NPY:
            if len(columns) != 1:
                raise several()
            return features({columns[0]: from_npy(body, columns[0])})
        if kind == MULTIPART:
            return from_files(files_of(content_type, body, max(settings.batch, len(columns))), count)
        if kind.startswith("image/") or kind == "application/octet-stream":
            return images([(None, body)])
        named = f"{kind[:50]!r}" if kind else "missing"
        raise RefusedError(415, f"The content type is {named}. Send {', '.join(TYPES)}.")

    def several() -> RefusedError:
        if not columns:
            return RefusedError(415, "Images are judged here, and features were sent. Send images.")
        return RefusedError(
            415,
            f"Several columns are judged: {', '.join(columns)}. Send JSON, or multipart/form-data with a .npy file a "
            "column, its field named as the column.",
        )

    def from_files(files: Sequence[File], count: Callable[[int], None]) -> Samples:
        arrays = [file for file in files if file.name.lower().endswith(".npy")]
        if not arrays:
            if len(files) > settings.batch:
                raise RefusedError(413, f"There are more than {settings.batch:,} files. Send fewer in a request.")
            count(len(files))
            return images([(file.name, file.content) for file in files])
        if len(arrays) != len(files):
            raise RefusedError(422, "There are images and .npy files. Send the ones or the others.")
        if len({file.field for file in files}) != len(files):
            raise RefusedError(422, "Two files are of one column. Send a .npy file a column, in a field of its name.")
        if not columns:
            raise several()
        return features({file.field: from_npy(file.content, file.field[:50] or "a file") for file in files})

    def features(given: dict[str, object]) -> Samples:
        if not columns:
            raise several()
        part = Part(checked(given, columns, settings.batch))
        return Samples([None] * len(part), [(part, range(len(part)))])

    def images(given: Sequence[tuple[str | None, bytes]]) -> Samples:
        if preprocessing is None:
            raise RefusedError(415, f"Features are judged here, and images were sent. Send {', '.join(columns)}.")
        pixels = [decoded(content, name, preprocessing, settings.pixels) for name, content in given]
        shapes: dict[tuple[int, ...], list[int]] = {}
        for i, one in enumerate(pixels):
            shapes.setdefault(one.shape, []).append(i)
        parts = [(Part({PIXELS: np.stack([pixels[i] for i in places])}), places) for places in shapes.values()]
        return Samples([name for name, _ in given], parts)

    return read


def decoded(content: bytes, name: str | None, preprocessing: Preprocessing, most: int) -> Floats:
    """The prepared pixels of an image, (h, w, c), uint8."""
    which = "The image" if name is None else f"The image {name!r}"
    if content[:1] == b"P" and content[1:2].isdigit():
        raise RefusedError(422, f"{which} is a PPM or PGM, which is not read here. Send a JPEG, PNG or WebP.")
    if content[:2] == b"BM" and content[30:31] in RUN_LENGTHS:
        raise RefusedError(422, f"{which} is a BMP with run lengths, which is not read here. Send a JPEG, PNG or WebP.")
    try:
        return preprocessing.pixels(decode_stream(io.BytesIO(content), most))
    except Exception as error:  # Pillow raises almost anything on damaged files
        cause = str(error).removesuffix(".") if isinstance(error, HeatError) else cause_of(error)
        raise RefusedError(422, f"{which} cannot be read: {cause[:500]}. Send a whole image.") from None
