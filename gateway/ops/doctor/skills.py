"""The checks of skills: what is withheld, left out, or hidden, and what departs from the format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path

from gateway.errors import ConfigError, StoreError
from gateway.ops.doctor.finding import Finding, Ground, named

_ADVICE = 'See docs/skills.md, "What you trust".'


async def skills(ground: Ground) -> AsyncIterator[Finding]:
    """Each that the agent does not have, and why; and what is wrong with the others."""
    config = ground.config
    if config is None or not (ground.is_shared or ground.parts.has_skills(ground.home, config.skills.paths)):
        return
    from gateway.skills.library import Scanner, had_by, places_of, problems_of, warnings_of
    from gateway.skills.offered import not_shown_note

    try:
        async with ground.opened_store() as store:
            trusted = {} if store is None else await store.skills.trusted()
    except (ConfigError, StoreError):
        return  # the checks of the database say why
    entries = Scanner().entries(places_of(ground.home, config.skills.paths), trusted)
    for problem in problems_of(entries, trusted):
        yield Finding(named("skill", problem), "warning", f"{problem[0].upper()}{problem[1:]}.", _ADVICE)
    for warning in warnings_of(entries):
        yield Finding(named("skill", warning), "note", f"{warning[0].upper()}{warning[1:]}.")
    for personality in sorted({"", *(entry.place.personality for entry in entries)}):
        if note := not_shown_note(had_by(entries, personality)):
            whose = f"The personality {personality} has" if personality else "All personalities have"
            yield Finding(
                f"skills-not-shown-{personality or 'all'}",
                "note",
                f"{whose} {note}.",
                "Give each personality its own, or take some away.",
            )
    if any(entry.skill is not None and entry.skill.scripts for entry in entries if entry.state == "trusted"):
        from gateway.sandbox.probing import find_sandbox

        sandbox = await find_sandbox(config.sandbox.command)
        if sandbox.tier is None:
            what = "No sandbox works here, so the agent runs no scripts of skills."
            yield Finding("skill-sandbox", "warning", what, f"{sandbox.remedy}.")
    faulty: Collection[Path] = [entry.root for entry in entries if entry.skill is not None and entry.faults]
    if faulty:
        places = ", ".join(map(str, faulty))
        yield Finding(
            "skill-format",
            "note",
            f"These skills depart from the format, and work: {places}.",
            "`ethos skills check` says how.",
        )
