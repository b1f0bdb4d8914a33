"""The ``heat-ood`` command: what its help says first, and its commands."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from ..allocation import keep_memory
from ._output import note
from ._registry import discover
from ._running import Running

__all__ = ["app", "build", "main"]

ABOUT = """
Out-of-distribution detection for frozen classifiers.
A score is an energy: [bold]higher = more out-of-distribution[/bold].

From images to decisions in two steps:

\b
  heat-ood protect --model timm:resnet34 --pretrained --train train/ --held-out val/ --out guard
  heat-ood check guard photo.jpg

Or one by one, images → features → detector → decisions:

\b
  heat-ood extract --model timm:resnet34 --pretrained --images train/ --out features/train
  heat-ood fit features/train --out detector
  heat-ood calibrate detector features/held-out
  heat-ood score detector features/new --fpr 0.05

Exit codes: 0 done · 1 an error in the data, a file or the model · 2 a wrong command line ·
3 check, or score --fail-on-ood, found OOD samples · 130 interrupted.
"""


def version(value: bool) -> None:
    if value:
        from .. import __version__

        typer.echo(f"heat-ood {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="HEAT_OOD_DEBUG", help="Show the whole traceback of an error.")
    ] = False,
) -> None:
    """What stands before the subcommand."""


def build() -> typer.Typer:
    """The command line, with all commands that are found."""
    built = typer.Typer(
        help=ABOUT,
        rich_markup_mode="rich",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    built.callback()(options)
    for name, command in discover().items():
        built.command(name, cls=Running)(command.run)
    return built


app = build()


def main() -> None:
    """The console script."""
    keep_memory()
    for stream in (sys.stdout, sys.stderr):  # names of files need not be text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(130)
    finally:
        flush()


def flush() -> None:
    """A reader that closed the pipe early is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
