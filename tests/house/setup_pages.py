"""The steps of `adapters/*/setup/setup.yaml` as they stand in `docs/channels/`.

`python -m tests.house.setup_pages` writes them into the pages again.
"""

from __future__ import annotations

import re
from pathlib import Path

from gateway.config.channel_kinds import known_kinds, setup_of
from gateway.config.channel_setup import KindSetup, SetupStep

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"(?<=<!-- setup -->\n).*?(?=\n<!-- end of setup -->)", re.DOTALL)


def page_of(kind: str) -> Path:
    return ROOT / "docs" / "channels" / f"{kind}.md"


def setup_in(kind: str) -> KindSetup:
    found = setup_of(kind)
    assert found is not None, f"adapters/{kind} brings no steps"
    return found


def rendered(kind: str) -> str:
    """What stands between the marks of a page."""
    setup = setup_in(kind)
    steps = [f"{number}. {_step(kind, step)}" for number, step in enumerate(setup.content.steps, 1)]
    then = [f"- {text}" for text in setup.content.then]
    return "\n".join(["", *steps, "", "Once it is connected:", "", *then, ""])


def _step(kind: str, step: SetupStep) -> str:
    text = step.text.strip()
    if step.copied is not None:
        name = step.copied.name
        text = text.replace(name, f"[{name}](#{name.replace(' ', '-')})", 1)
    shown = f"\n\n![{step.shows}](../../adapters/{kind}/setup/{step.picture})" if step.picture else ""
    return f"**{step.title}.** {text}{shown}".replace("\n", "\n   ").replace("\n   \n", "\n\n")


def main() -> None:
    for kind in known_kinds():
        page = page_of(kind)
        page.write_text(PLACE.sub(lambda _, kind=kind: rendered(kind), page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
