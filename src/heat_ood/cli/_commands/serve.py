"""``heat-ood serve``: a guard as a service over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._output import note, show
from .._registry import command

if TYPE_CHECKING:
    from ...guarding import Judge

__all__ = ["serve"]

LIMITS = "Limits"
"""The panel of the help with what a request may be."""


def library_defaults() -> dict[str, Any]:
    from dataclasses import fields

    from ...serving import HOST, PORT, Settings

    values = {f.name: f.default for f in fields(Settings) if f.name not in ("drift", "drift_state", "samples", "token")}
    return {**values, "host": HOST, "port": PORT}


def limit(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=LIMITS)


@command(order=16, interrupted="what was accepted is answered, and drift is saved", defaults=library_defaults)
def serve(
    guard: Annotated[Path, typer.Argument(help="A folder that heat-ood protect or fit wrote, or an exported file.")],
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; 0.0.0.0 lets other machines in: use a token.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="0 takes a free one.")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token that requests must bear; or the environment's HEAT_OOD_TOKEN."),
    ] = None,
    fpr: Annotated[float | None, typer.Option(help="The false-alarm rate of verdicts.")] = None,
    samples: Annotated[Path | None, typer.Option(help="A folder of images that the page offers to try.")] = None,
    drift_state: Annotated[
        Path | None, typer.Option(help="The file that keeps the watch for drift. Default: GUARD.drift.json.")
    ] = None,
    no_drift: Annotated[bool, typer.Option("--no-drift", help="Do not watch for drift.")] = False,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request, without its query.")] = False,
    body_bytes: Annotated[int | None, limit("Bytes of a request.")] = None,
    held_bytes: Annotated[int | None, limit("Bytes that all requests hold at once.")] = None,
    pixels: Annotated[int | None, limit("Pixels of an image.")] = None,
    batch: Annotated[int | None, limit("Samples of a request, and samples judged together.")] = None,
    queue: Annotated[int | None, limit("Samples that wait; beyond them, requests are answered with 503.")] = None,
    wait: Annotated[float | None, limit("Seconds that a batch waits for requests still being decoded.")] = None,
    seconds: Annotated[float | None, limit("Seconds of a request, from its first byte to its answer.")] = None,
    idle_seconds: Annotated[float | None, limit("Seconds for the headers of a connection's next request.")] = None,
    connections: Annotated[int | None, limit("Connections at once.")] = None,
    decoders: Annotated[int | None, limit("Threads that decode.")] = None,
) -> None:
    """Serve a guard over HTTP: POST images or features to /v1/score, open / in a browser.

    The first line printed is the address. SIGTERM answers what was accepted, saves drift and ends.

    [dim]Examples:[/dim]

      heat-ood serve guard

      curl -F image=@photo.jpg http://127.0.0.1:8000/v1/score
    """
    from ...serving import HOST, PORT, Settings, is_loopback, read_token
    from ...serving import serve as run

    if no_drift and drift_state is not None:
        raise typer.BadParameter("drift is watched or it is not: leave out one of the two.", param_hint="--no-drift")
    limits: dict[str, Any] = {
        **{"fpr": fpr, "body_bytes": body_bytes, "held_bytes": held_bytes, "pixels": pixels, "batch": batch},
        **{"queue": queue, "wait": wait, "seconds": seconds, "idle_seconds": idle_seconds},
        **{"connections": connections, "decoders": decoders},
    }
    settings = Settings(
        **{name: value for name, value in limits.items() if value is not None},
        token=read_token(token_file),
        drift=not no_drift,
        drift_state=None if no_drift else drift_state or beside(guard),
        samples=samples,
        access_log=access_log,
    )
    where = host or HOST
    if not is_loopback(where) and settings.token is None:
        note(
            f"warning: {where} lets other machines in, and no token is asked for: anyone who reaches it can use it. "
            "Pass --token-file, or leave out --host."
        )
    judge = opened(guard)
    run(judge, settings, where, PORT if port is None else port, show)


def beside(guard: Path) -> Path:
    """Where drift is kept: beside the guard, not within."""
    whole = guard.resolve()
    return whole.with_name(f"{whole.name}.drift.json")


def opened(path: Path) -> Judge:
    """What judges: a guard's folder, a detector's, or an exported file, which must judge here as where it was made."""
    from ...export import Exported, load
    from ...guarding import LiveJudge

    found = load(path)
    if not isinstance(found, Exported):
        return LiveJudge(found)
    found.verify()
    return found
