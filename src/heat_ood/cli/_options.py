"""Arguments and options that several commands declare alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["FALSE_ALARMS", "FROM_IMAGES", "Detector", "Json", "Members", "Out", "Overwrite", "Part", "Trust"]

FALSE_ALARMS = 0.05
"""The rate that the verdicts of a guard hold."""
FROM_IMAGES = "From images"
"""The panel of the help with what matters for images alone."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Detector = Annotated[Path, typer.Argument(help="A folder that heat-ood fit wrote, or a file of heat-ood export.")]
Out = Annotated[
    Path, typer.Option(help="A folder for the features; what they were made of is written beside it, OUT.json.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Open an exported .pt2 file although that may run code which is in it.")
]
Part = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="NUMBER/OF",
        help="One part of the samples alone, 0/64 to 63/64, into a folder of its own; heat-ood merge closes all.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Start anew, even if there are features.")]
Members = Annotated[
    list[Path] | None,
    typer.Option(
        "--member",
        help="Weights of a further member of an ensemble, beside --weights; give it several times for several.",
        rich_help_panel=FROM_IMAGES,
    ),
]
