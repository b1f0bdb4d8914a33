"""Files elsewhere, by their URL (``s3://``, ``gs://``, ``hf://``): fetched to be read, sent when they are made."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import InputError
from ._writing import replacing

__all__ = ["Mirror", "cache_folder", "url_of"]

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)
_LOCAL = ("file", "local")
_BACKENDS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub", "abfs": "adlfs"}
_TELLING = ("size", "ETag", "etag", "mtime", "LastModified", "created", "updated")
"""What file systems say of a file, by which a change is noticed."""
_FSSPEC = "Paths with :// in them need fsspec: pip install heat-ood[remote]"


def url_of(path: str | PathLike[str]) -> str | None:
    """A path as a URL, where it is one, also after ``Path`` has made one slash of two; None of all other paths.

    Example:
        >>> url_of("s3://bucket/a"), url_of(Path("s3://bucket/a")), url_of("C:/a"), url_of("a/b")
        ('s3://bucket/a', 's3://bucket/a', None, None)
    """
    found = _URL.fullmatch(os.fspath(path).replace("\\", "/"))
    if found is None:
        return None
    return f"{found[1]}://{'/' if found[1] in _LOCAL else ''}{found[2].rstrip('/')}"


def cache_folder() -> Path:
    """Where copies of remote files lie, ``HEAT_OOD_CACHE`` or ``~/.cache/heat-ood``; it may be deleted at any time."""
    return Path(os.environ.get("HEAT_OOD_CACHE") or Path.home() / ".cache" / "heat-ood")


class Mirror:
    """A local copy of some of the files below a URL.

    Args:
        url: of a folder, or of a file.
        version: of what is there; another version has another copy. Empty for files that are being made here.

    ``local`` is the copy.
    """

    def __init__(self, url: str, version: str = "") -> None:
        self.url = url
        name = url.rpartition("/")[2] or "files"
        digest = hashlib.sha256(f"{url}\n{version}".encode()).hexdigest()[:24]
        self.local = cache_folder() / digest / re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80]
        self.system, self.root = _system_of(url)

    @classmethod
    def of_file(cls, url: str) -> Mirror:
        """Of a single file, as it is now."""
        mirror = cls(url)
        with _said(url):
            mirror.system.invalidate_cache()
            if not mirror.system.exists(mirror.root):
                raise InputError(f"There is no {url}.")
            about = mirror.system.info(mirror.root)
        return cls(url, repr([str(about.get(key)) for key in _TELLING]))

    def read(self) -> bytes:
        """The content of a single file, which is not kept."""
        with _said(self.url):
            return bytes(self.system.cat_file(self.root))

    def at(self, name: str) -> str:
        """Where a file is."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        with _said(self.url):
            return bool(self.system.exists(self.at(name)))

    def names(self) -> list[str]:
        """What lies in the folder, files and folders, without what lies in these."""
        with _said(self.url):
            if not self.system.exists(self.root):
                return []
            self.system.invalidate_cache()
            listed = self.system.ls(self.root, detail=False)
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in listed)

    def fetch(self, name: str = "", *, again: bool = False) -> Path:
        """The copy of a file, made where there is none yet; ``again`` makes it anew.

        Raises:
            FileNotFoundError: there is no such file.
        """
        target = self.local / name if name else self.local
        if again or not target.exists():
            with _said(self.url):
                self.system.invalidate_cache()
                if not self.system.exists(self.at(name)):
                    raise FileNotFoundError(f"{self.url}/{name}".rstrip("/"))
            with replacing(target) as part, _said(self.url):
                self.system.get_file(self.at(name), str(part))
        return target

    def fetch_beside(self, ending: str) -> None:
        """Fetch the file whose name is that of the folder with an ending, where there is one."""
        with _said(self.url):
            if self.system.exists(self.root + ending):
                with replacing(self.local.with_name(self.local.name + ending)) as part:
                    self.system.get_file(self.root + ending, str(part))

    def send_beside(self, ending: str) -> None:
        """Send such a file."""
        with _said(self.url):
            self.system.makedirs(self.root.rpartition("/")[0], exist_ok=True)
            self.system.put_file(str(self.local.with_name(self.local.name + ending)), self.root + ending)

    def send(self, names: Iterable[str]) -> None:
        """Copy files of the local copy to where they belong, in this order; a file that is read there is whole."""
        with _said(self.url):
            for name in names:
                place = self.at(name)
                self.system.makedirs(place.rpartition("/")[0], exist_ok=True)
                self.system.put_file(str(self.local / name if name else self.local), place)


class _said:  # noqa: N801 - reads as a word
    """Errors of a file system elsewhere as ours, with its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        ours = isinstance(error, InputError | FileNotFoundError)
        if isinstance(error, Exception) and not ours:
            raise InputError(
                f"{self.url} cannot be reached ({type(error).__name__}: {str(error)[:200]}). Check its address, your "
                "credentials and the network."
            ) from error


def _system_of(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise InputError(f"{url} is a URL. {_FSSPEC}") from None
    scheme = url.partition("://")[0]
    try:
        system, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        needed = _BACKENDS.get(scheme)
        how = f"pip install {needed}" if needed else str(error)
        raise InputError(f"{url} cannot be opened: fsspec has no backend for {scheme}://. Install it: {how}") from None
    except ValueError as error:
        raise InputError(f"{url} cannot be opened ({error}). Pass a local path, or a URL that fsspec knows.") from None
    except Exception as error:
        raise InputError(f"{url} cannot be reached ({type(error).__name__}: {str(error)[:200]}).") from error
    return system, str(root).rstrip("/")
