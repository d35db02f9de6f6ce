"""Settings: the configuration in force, where each value comes from, and whether the file says otherwise by now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.config.changes import compare
from gateway.config.file import Loaded, load_config
from gateway.config.listing import Setting, settings_of, written
from gateway.errors import ConfigError
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import Form

PAGE = Page(name="settings", title="Settings", icon="settings", position=90)

DIFFERS = "not as the file has it now"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """What the file says now.

    Attributes:
        problems: why it cannot be used; then nothing else is known of it.
        at_once: settings that a reload would take over.
        at_restart: those that wait for a restart.
    """

    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()
    at_once: Sequence[str] = ()
    at_restart: Sequence[str] = ()

    @property
    def differs(self) -> bool:
        """Whether the gateway runs with something else."""
        return bool(self.at_once or self.at_restart)


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """Every setting in force."""
    try:
        loaded = await asyncio.to_thread(load_config, home=context.sources.home)
    except ConfigError as error:
        state = FileState(problems=error.problems)
        answered = await context.services.system.settings(context.caller)
        settings = [Setting(key=key, value=value, source="") for key, value in _flat(answered.values)]
    else:
        differing = compare(context.sources.config.current, loaded.config)
        state = FileState(warnings=loaded.warnings, at_once=differing.at_once, at_restart=differing.at_restart)
        settings = _settings(context, loaded)
    is_short = request.query_params.get("show") == "set" and not state.problems
    if is_short:
        settings = [one for one in settings if one.source != "default"]
    groups = [(name, list(found)) for name, found in groupby(settings, key=lambda one: one.key.partition(".")[0])]
    return context.render(
        request,
        "settings/index.html",
        title=PAGE.title,
        path=str(context.sources.home / "config.yaml"),
        state=state,
        is_short=is_short,
        general=[one for name, found in groups for one in found if one.key == name],
        groups=[(name, found) for name, found in groups if found[0].key != name],
        written=written,
    )


@PAGE.form("/reload")
async def reload(context: PageContext, request: Request, _form: Form) -> Response:
    """Take the file over as it is now."""
    done = await context.services.system.reload(context.caller)
    if done.problems:
        text = "Nothing was taken over: " + "; ".join(done.problems)
        return context.go(request, PAGE.path, text, is_problem=True)
    context.live.changed("channels")
    taken = f"In force now: {', '.join(done.at_once)}." if done.at_once else "Nothing to take over at once."
    waits = f" After a restart: {', '.join(done.at_restart)}." if done.at_restart else ""
    return context.go(request, PAGE.path, taken + waits)


def _settings(context: PageContext, loaded: Loaded) -> list[Setting]:
    """What is in force; where the file has changed since, it is not known what was a secret."""
    in_file = {one.key: one for one in settings_of(loaded.config, loaded.sources)}
    in_force = settings_of(context.sources.config.current, dict.fromkeys(in_file, ""))
    unmasked = {one.key: one.value for one in settings_of(loaded.config, dict.fromkeys(in_file, ""))}
    return [
        in_file[one.key]
        if one.value == unmasked[one.key]
        else Setting(key=one.key, value="(hidden until the file is taken over)", source=DIFFERS)
        for one in in_force
    ]


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Nested values under dotted names."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        found += _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else [(before + name, value)]
    return found
