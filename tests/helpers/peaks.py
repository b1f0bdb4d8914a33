"""How much memory a process of a test's own took."""

from __future__ import annotations

__all__ = ["PEAK"]

PEAK = """
def peak():
    with open("/proc/self/status") as file:
        return int(file.read().split("VmHWM:")[1].split()[0])
"""
"""For the script of a child: the most memory that it took, in KiB. ``ru_maxrss`` would begin with its parent's."""
