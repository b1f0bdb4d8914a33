"""``python -m heat_ood.cli``."""

from .app import main

main()
