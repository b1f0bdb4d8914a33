"""The ``heat-ood`` command: its subcommands, its errors and its exit codes."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ._backbone import train_backbone
from ._benchmark import benchmark
from ._compare import compare
from ._contrast import contrast
from ._defaults import LibraryDefaults
from ._demo import demo
from ._extract import extract
from ._fit import fit
from ._info import info, methods
from ._judge import calibrate, evaluate, score
from ._output import note
from ._report import report

__all__ = ["app", "main"]

INTERRUPTED = {
    "extract": "run the same command again to go on",
    "contrast": "run the same command again to go on",
    "benchmark": "run the same command again to go on",
    "fit": "with --checkpoint the same command goes on, without it nothing was written",
    "calibrate": "the detector is as it was",
    "train-backbone": "run the same command again to go on after the last finished epoch",
}
SPELLINGS = {"overwrite=True": "--overwrite", 'head="name"': "--head NAME", "head=False": "--head none"}
"""What the library's errors advise, as it is written here."""
ABOUT = """
Out-of-distribution detection for frozen classifiers.
A score is an energy: [bold]higher = more out-of-distribution[/bold].

Images → features → detector → decisions:

\b
  heat-ood extract --model timm:resnet34 --pretrained --images train/ --out features/train
  heat-ood fit features/train --out detector
  heat-ood calibrate detector features/held-out
  heat-ood score detector features/new --fpr 0.05

Exit codes: 0 done · 1 an error in the data, a file or the model · 2 a wrong command line ·
3 score --fail-on-ood found OOD samples · 130 interrupted.
"""


class Commands(TyperGroup):
    """Turns errors of the library into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("default", module="heat_ood")
                warnings.showwarning = lambda message, *_, **__: note(f"note: {message}")
                return super().invoke(ctx)
        except KeyboardInterrupt:
            hint = INTERRUPTED.get(ctx.invoked_subcommand or "", "nothing was changed")
            note(f"interrupted; {hint}")
            raise typer.Exit(130) from None
        except Exception as error:
            if ctx.params.get("debug") or not expected(error):
                raise
            text = str(error)
            for python, option in SPELLINGS.items():
                text = text.replace(python, option)
            note(f"error: {text}")
            raise typer.Exit(1) from None


def expected(error: Exception) -> bool:
    """Whether the message says all: our own errors, and those of the file system."""
    from ..errors import HeatError

    return isinstance(error, HeatError) or (isinstance(error, OSError) and error.errno not in (None, errno.EPIPE))


app = typer.Typer(
    cls=Commands,
    help=ABOUT,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version(value: bool) -> None:
    if value:
        from .. import __version__

        typer.echo(f"heat-ood {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="HEAT_OOD_DEBUG", help="Show the whole traceback of an error.")
    ] = False,
) -> None:
    """What stands before the subcommand."""


COMMANDS = (
    demo,
    extract,
    contrast,
    compare,
    fit,
    calibrate,
    score,
    evaluate,
    info,
    methods,
    benchmark,
    report,
    train_backbone,
)
for function in COMMANDS:
    app.command(cls=LibraryDefaults)(function)


def main() -> None:
    """The console script."""
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
