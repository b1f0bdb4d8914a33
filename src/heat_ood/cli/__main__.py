"""``python -m heat_ood.cli``."""

from ._app import main

main()
