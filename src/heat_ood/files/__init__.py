"""Files: written whole or not at all, with a header that says what they are; values as JSON, and strictly back."""

from ._format import Format
from ._reading import read
from ._remote import Mirror, cache_folder, url_of
from ._tensors import digest_of_tensors, metadata_of, write_tensors
from ._values import frame, plain, restored, short
from ._writing import is_part, locked, part_of, replacing, sweep, sweep_all, write

__all__ = [
    "Format",
    "Mirror",
    "cache_folder",
    "digest_of_tensors",
    "frame",
    "is_part",
    "locked",
    "metadata_of",
    "part_of",
    "plain",
    "read",
    "replacing",
    "restored",
    "short",
    "sweep",
    "sweep_all",
    "url_of",
    "write",
    "write_tensors",
]
