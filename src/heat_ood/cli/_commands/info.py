"""``heat-ood info``: what a folder holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from .._options import Json
from .._output import emit, facts, show, training_table
from .._registry import command

__all__ = ["info"]


@command(order=90)
def info(
    path: Annotated[Path, typer.Argument(help="A guard, a detector, stored features, or an exported file.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read stored features whole and compare their checksums.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what a folder or an exported file holds: a guard or a detector, or stored features, and what they saw.

    Of stored features sizes, headers and the ends of each file are checked; --verify reads all of them.

    [dim]Example:[/dim]

      heat-ood info detector
    """
    from ...energies import DETECTOR_FILE
    from ...errors import InputError
    from ...export import is_exported
    from ...features import FEATURES_FILE, Features, shards_in
    from ...guarding import GUARD_FILE

    if is_exported(path):
        about_exported(path, json)
    elif (path / GUARD_FILE).exists():
        about_guard(path, json)
    elif (path / DETECTOR_FILE).exists():
        about_detector(path, json)
    elif (path / FEATURES_FILE).exists():
        about_features(path, json, verify)
    elif shards_in(path):
        Features.open(path)  # says what is missing
    else:
        what = "There is no such folder" if not path.exists() else f"It has neither {DETECTOR_FILE} nor {FEATURES_FILE}"
        raise InputError(
            f"{path} is neither a guard, nor a detector, nor stored features. {what}; pass what heat-ood protect, fit "
            "or extract wrote."
        )


def about_exported(path: Path, json: bool) -> None:
    """What the file says of itself; its graph is not run."""
    from ...export import facts_in

    known = facts_in(path)
    about = dict(known.about)
    result: dict[str, Any] = {
        "exported": str(path),
        "method": about.get("method"),
        "takes": known.takes,
        "columns": known.columns,
        "outputs": known.outputs,
        "energies": known.energies,
        "fpr": known.fpr,
        "preprocessing": known.preprocessing,
        "classes": known.classes,
        "calibration": about.get("calibration"),
        "fingerprint": about.get("fingerprint"),
        "reduced": known.reduced,
        "versions": dict(known.versions),
        "bytes": path.stat().st_size,
    }
    if json:
        emit({**result, "about": about})
        return
    shown = {name: ", ".join(value) if isinstance(value, tuple) else value for name, value in result.items()}
    shown["versions"] = ", ".join(f"{name} {number}" for name, number in known.versions.items())
    show(facts({name: value for name, value in shown.items() if value not in (None, "")}))


def about_guard(path: Path, json: bool) -> None:
    """Of its model what the folder says: it is not made, so no code of it runs."""
    from ...guarding import DETECTOR, read_record

    record = read_record(path)
    layers = ["stages"] if record.stages else list(record.layers)
    about = {
        "guard": str(path),
        "model": record.model,
        "model_weights": None if record.weights is None else str(path / record.weights),
        "layers": layers,
        "head": "none" if record.headless else record.head,
        "verified": "the detector; the weights are compared with its fingerprint when the guard is loaded",
    }
    about_detector(path / DETECTOR, json, about)


def shown_seen(seen: Mapping[str, Any]) -> dict[str, str]:
    """What was seen, in words."""
    shown = {name: str(value) for name, value in seen.items() if name != "samples"}
    if "preprocessing" in seen:
        shown["preprocessing"] = ", ".join(f"{name} {value}" for name, value in seen["preprocessing"].items())
    if "classes" in seen:
        shown["classes"] = f"{len(seen['classes'])}: {', '.join(seen['classes'])}"
    return {f"seen: {name}": value for name, value in shown.items()}


def about_detector(path: Path, json: bool, about: Mapping[str, Any] = MappingProxyType({})) -> None:
    from ...energies import Energy

    energy = Energy.load(path)
    seen = {} if energy.seen_ is None else energy.seen_.to_dict()
    known = energy.calibration
    calibration = None if known is None else {"samples": len(known.scores), "per_class": known.per_class}
    outcomes, log = getattr(energy, "outcomes", {}), getattr(energy, "log", {})
    result: dict[str, Any] = {**about, "detector": str(path), "method": energy.name, "reads": energy.reads}
    result.setdefault("verified", "all of it")
    result |= {"priors": getattr(energy, "priors_", ()), "settings": energy.settings, "calibration": calibration}
    result |= {"fingerprint": energy.fingerprint, "bytes": sum(f.stat().st_size for f in path.iterdir() if f.is_file())}
    if json:
        emit({**result, "seen": seen, "outcomes": outcomes, "log": log})
        return
    shown = {**result, "reads": ", ".join(energy.reads), "priors": ", ".join(result["priors"]) or "none"}
    shown["settings"] = "\n".join(f"{name} = {value!r}" for name, value in energy.settings.items())
    shown["calibration"] = "none: no p-values yet"
    if calibration is not None:
        shown["calibration"] = f"{calibration['samples']:,} samples{', per predicted class' * calibration['per_class']}"
    if about:
        shown["layers"] = ", ".join([*about["layers"], "the last"])
        shown = {name: value for name, value in shown.items() if value is not None}
    show(facts({**shown, "bytes": f"{result['bytes']:,}", **shown_seen(seen)}))
    if outcomes:
        show(training_table(outcomes, log))


def about_features(path: Path, json: bool, verify: bool) -> None:
    from ...features import Features, column_name, is_sharded, read_manifest
    from .._sidecar import read_sidecar

    if is_sharded(path):
        about_shards(path, json, verify)
        return
    manifest = read_manifest(path)
    if manifest.finished:
        Features.open(path, verify=verify and bool(manifest.checksums))
    columns = {column_name((c.layer, c.pooling)): {"width": c.width or 1, "dtype": c.dtype} for c in manifest.columns}
    sidecar = read_sidecar(path) or {}
    result = {"features": str(path), "finished": manifest.finished, "samples": manifest.count, "columns": columns}
    result |= {
        "origin": manifest.origin or None,
        "classes": manifest.classes,
        "head": bool(manifest.head),
        "fingerprint": manifest.fingerprint,
    }
    if verify:
        result["verified"] = (
            "not finished"
            if not manifest.finished
            else "all of it"
            if manifest.checksums
            else "no: it has no checksums, since an earlier version made it"
        )
    result |= {key: sidecar.get(key) for key in ("model", "images", "preprocessing")} | {
        "class_names": sidecar.get("classes")
    }
    if sidecar.get("skipped"):
        result["skipped"] = list(sidecar["skipped"])
    seen = manifest.seen
    if json:
        emit({**result, "seen": seen})
        return
    shown = {name: value for name, value in result.items() if value is not None}
    if sidecar:
        shown["preprocessing"] = ", ".join(f"{name} {value}" for name, value in sidecar["preprocessing"].items())
    shown["columns"] = ", ".join(f"{name} ({c['width']} × {c['dtype']})" for name, c in columns.items())
    show(facts(shown | shown_seen({name: value for name, value in seen.items() if result.get(name) is None})))
    if not manifest.finished:
        show("not finished: run the extraction again with the same arguments, and it goes on")


def about_shards(path: Path, json: bool, verify: bool) -> None:
    """Of a store of shards what its manifest says; --verify reads all shards."""
    from ...features import Features, column_name, read_closing
    from .._sidecar import read_sidecar

    Features.open(path, verify=verify)
    closing, _ = read_closing(path)
    columns = {column_name((c.layer, c.pooling)): {"width": c.width or 1, "dtype": c.dtype} for c in closing.columns}
    sidecar = read_sidecar(path) or {}
    result: dict[str, Any] = {
        "features": str(path),
        "shards": len(closing.members),
        "samples": closing.count,
        "columns": columns,
        "origin": closing.origin or None,
        "classes": closing.classes,
        "head": bool(closing.head),
        "fingerprint": closing.fingerprint,
        **({"verified": "all of it"} if verify else {}),
        **{key: sidecar.get(key) for key in ("model", "images")},
    }
    if json:
        emit({**result, "seen": closing.seen})
        return
    shown = {name: value for name, value in result.items() if value is not None}
    shown["columns"] = ", ".join(f"{name} ({c['width']} × {c['dtype']})" for name, c in columns.items())
    show(facts(shown | shown_seen({name: value for name, value in closing.seen.items() if result.get(name) is None})))
