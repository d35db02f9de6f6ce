"""The time zone of the machine, as a first guess of its owner's."""

from __future__ import annotations

from pathlib import Path

from gateway.config.values import zone_name

CLOCK = Path("/etc/localtime")
"""A link to the data of the machine's time zone, on Linux and macOS."""


def zone_of_machine() -> str:
    """The time zone that the machine's clock shows; UTC where it does not say which that is."""
    _, _, name = str(CLOCK.resolve()).rpartition("/zoneinfo/")
    try:
        return zone_name(name) if name and name != "Etc/UTC" else "UTC"
    except ValueError:
        return "UTC"
