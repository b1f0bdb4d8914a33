"""``heat-ood methods``: what there is to choose from."""

from __future__ import annotations

from .._options import Json
from .._output import emit, show, table
from .._registry import command

__all__ = ["methods"]


@command(order=100)
def methods(json: Json = False) -> None:
    """List the methods for fit --method, and what each reads.

    [dim]Example:[/dim]

      heat-ood methods
    """
    from ...energies import methods as names
    from ...registry import METHODS

    found = {name: {"reads": list(reads), "summary": METHODS[name].summary} for name, reads in names().items()}
    if json:
        emit(found)
    else:
        show(
            table(
                ["method", "reads", "what it is"],
                [[name, ", ".join(m["reads"]), str(m["summary"])] for name, m in found.items()],
            )
        )
