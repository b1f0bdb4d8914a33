"""What extract and contrast share: from images and a model to stored features, with a record beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ._images import images_at
from ._model_options import ModelOptions
from ._output import emit, facts, note, show

if TYPE_CHECKING:
    from ..features import Extractor, Features, Shard

__all__ = ["store", "summary", "tell"]


def store(
    options: ModelOptions,
    images: Path,
    out: Path,
    run: Callable[[Extractor, Any, bool, Shard | None], Features],
    *,
    labels: bool,
    overwrite: bool,
    limit: int | None = None,
    kinds: Sequence[str] | None = None,
    shard: str | None = None,
) -> tuple[Features, dict[str, Any]]:
    """Stored features of images, and what they are.

    Args:
        options: of the model.
        images: a folder, an .npz file, a list, or tar files.
        out: a folder for the features.
        run: from the extractor, a loader, whether to start anew, and the shard that it is, to the features.
        labels: read the labels of the images too.
        overwrite: start anew, even if there are features.
        limit: so many images, spread evenly.
        kinds: of the distortions, if the images are distorted; they then stand in another order than their files.
        shard: ``3/64`` for one part of the images alone, in a folder of its own in ``out``.
    """
    from ..features import FEATURES_FILE, Shard, begun_at, folder_of, read_manifest
    from ..files import url_of
    from ._sidecar import check_sidecar, read_sidecar, write_sidecar

    if options.model is None:
        raise typer.BadParameter(
            "say which model reads the images: timm:NAME or package.module:function.", param_hint="--model"
        )
    place = None if shard is None else Shard.of_text(shard)
    part = None if place is None else place.block
    found = images_at(images, labels=labels, limit=limit, skip_unreadable=options.skip_unreadable, part=part)
    if place is not None:
        assert found.place is not None
        place = place.at(*found.place)
    where = out if place is None else folder_of(out, place)
    url, mirror = url_of(where), None
    if url is not None:
        mirror, _ = begun_at(url, overwrite)
        mirror.fetch_beside(".json")
    out = Path(where) if mirror is None else mirror.local
    extractor = options.extractor()
    found.preprocessing, why = options.preprocessing(extractor.network, found)
    note(
        f"{len(found):,} images of {images}{'' if place is None else f', shard {place}'}: {found.preprocessing} ({why})"
    )

    record = {
        "model": options.model,
        "images": str(images),
        **found.identity,
        "preprocessing": found.preprocessing.to_dict(),
        **({"skipped": dict(found.skipped)} if found.skipped else {}),
    }
    if kinds is not None:
        record |= {"files": None, "sources": record["files"], "kinds": list(kinds)}
    begun = not overwrite and (out / FEATURES_FILE).exists() and read_manifest(out).count > 0
    known = begun and check_sidecar(out, record)
    stands = not begun and finished(out) and read_sidecar(out) is not None
    if not begun and not stands:
        write_sidecar(out, record)
    features = run(extractor, options.loader(found), not begun, place)
    if stands or (begun and not known):  # what stood there has been replaced, so its record is now too
        write_sidecar(out, record)
    if mirror is not None:
        mirror.send_beside(".json")
    result = summary(features, out if url is None else url) | {"classes": record["classes"], "model": options.model}
    result |= {"preprocessing": found.preprocessing}
    return features, result | ({"skipped": list(found.skipped)} if found.skipped else {})


def finished(store: Path) -> bool:
    """Whether features stand there, which stay until others are finished in their place."""
    from ..errors import FormatError
    from ..features import read_manifest

    try:
        return read_manifest(store).finished
    except FormatError:
        return False


def summary(features: Features, path: Path | str) -> dict[str, Any]:
    """What a feature set is, for people and for JSON."""
    return {
        "features": str(path),
        "samples": len(features),
        "columns": {name: width_of(features, name) for name in sorted(features.available - {"labels", "head"})},
        "labels": features.labels is not None,
        "head": features.head is not None,
        "fingerprint": features.fingerprint,
    }


def width_of(features: Features, name: str) -> int:
    column = features[:1].column(name)
    return 0 if column is None else column.shape[1]


def tell(result: dict[str, Any], json: bool, **shown: str) -> None:
    """Print a result; ``shown`` says some of it in words."""
    if json:
        emit(result)
    else:
        columns = ", ".join(f"{name} {width}" for name, width in result["columns"].items())
        result = {key: value for key, value in result.items() if key != "confidence"}
        show(facts({**result, "columns": columns, **shown}))
