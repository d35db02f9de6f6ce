"""The text of `config.example.yaml`: the build puts it beside this module; in a checkout it lies at the top."""

from __future__ import annotations

from pathlib import Path

EXAMPLE_NAME = "config.example.yaml"


def example_text() -> str:
    """Every key of the configuration with its explanation, as the file has it. Blocks: it reads the file.

    Raises:
        FileNotFoundError: the installation lacks it.
    """
    here = Path(__file__).with_name(EXAMPLE_NAME)
    return (here if here.exists() else Path(__file__).parents[2] / EXAMPLE_NAME).read_text(encoding="utf-8")
