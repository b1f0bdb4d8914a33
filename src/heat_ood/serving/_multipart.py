"""The files of a multipart body, in memory alone: none is written to disk."""

from __future__ import annotations

from typing import NamedTuple

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from ._refusals import RefusedError

__all__ = ["File", "files_of"]

SLICE = 1 << 16
"""Bytes that the parser is given at a time: a header that does not end is noticed after so many."""
HEADERS = 1 << 13
"""Bytes of a part's headers."""
LONGEST = 200
"""Characters of a file's name that are kept."""


class File(NamedTuple):
    """A part with the name of a file."""

    field: str
    name: str
    content: bytes


class Parts:
    """What the parser finds."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.files: list[File] = []
        self.ended = False
        self.begin()

    def begin(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.name, self.value, self.size, self.content = b"", b"", 0, bytearray()

    def header_name(self, data: bytes, start: int, end: int) -> None:
        self.name += self.header(data, start, end)

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self.value += self.header(data, start, end)

    def header(self, data: bytes, start: int, end: int) -> bytes:
        self.size += end - start
        if self.size > HEADERS:
            raise broken("the headers of a part do not end")
        return data[start:end]

    def header_end(self) -> None:
        self.headers[self.name.lower()] = self.value
        self.name, self.value = b"", b""

    def data(self, data: bytes, start: int, end: int) -> None:
        self.content += data[start:end]

    def end(self) -> None:
        _, options = parse_options_header(self.headers.get(b"content-disposition", b""))
        field = text(options.get(b"name", b""))
        if b"filename" not in options:
            raise RefusedError(422, f"The part {field!r} is no file. Send files: curl -F image=@photo.jpg.")
        if len(self.files) >= self.most:
            raise RefusedError(413, f"There are more than {self.most:,} files. Send fewer in a request.")
        self.files.append(File(field, text(options[b"filename"]), bytes(self.content)))

    def finish(self) -> None:
        self.ended = True


def text(value: bytes) -> str:
    """What a client calls something, no longer than a name may be."""
    return value.decode("utf-8", "replace")[-LONGEST:]


def broken(cause: str) -> RefusedError:
    return RefusedError(400, f"The multipart body cannot be read: {cause}. Send it whole: curl -F image=@photo.jpg.")


def files_of(content_type: str, body: bytes, most: int) -> list[File]:
    """The files of a body, at most so many; in the order that they were sent in."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise broken("its content type names no boundary")
    found = Parts(most)
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": found.begin,
                "on_part_data": found.data,
                "on_part_end": found.end,
                "on_header_field": found.header_name,
                "on_header_value": found.header_value,
                "on_header_end": found.header_end,
                "on_end": found.finish,
            },
        )
        for start in range(0, len(body), SLICE):
            parser.write(body[start : start + SLICE])
    except FormParserError:
        raise broken("it is not as its boundary says") from None
    if not found.ended:
        raise broken("it ends in the middle")
    if not found.files:
        raise broken("there is no file in it")
    return found.files
