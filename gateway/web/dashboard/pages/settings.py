"""Settings: every key, by its group; changed in a form, seen as a difference before it is saved, and undone."""

from __future__ import annotations

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from gateway.sdk.models.settings import (
    ChangeSettings,
    Setting,
    SettingChange,
    SettingProblem,
    SettingsList,
    SettingsProposal,
    SettingsSaved,
)
from gateway.services.caller import Malformed, Refused
from gateway.services.settings import SettingsChanged
from gateway.web.dashboard.flash import Undo
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.setting_fields import Field, carried, changes_in, fields_of, merged, typed_in
from gateway.web.forms import Form

PAGE = Page(name="settings", title="Settings", icon="settings", position=90)

_KEPT_S = 900.0
_MOST_KEPT = 50
_ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "channels": ("/dashboard/channels", "Channels"),
    "mcp.servers": ("/dashboard/servers", "Servers"),
}
"""Entries that have a page of their own."""
_NEW: Mapping[str, Sequence[str]] = {
    "models": ("provider", "model", "base_url", "api_key", "input_usd_per_million", "output_usd_per_million"),
    "hooks": ("secret", "text", "to"),
    "budgets.personalities": ("turns", "tokens", "usd"),
}
"""What is asked of a new entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The keys of one form.

    Attributes:
        key: of an entry with a chosen name, such as `models.main`; empty for the other keys of a group.
    """

    group: str
    key: str = ""
    fields: Sequence[Field] = ()

    @property
    def id(self) -> str:
        """For the page."""
        return "b-" + re.sub(r"[^A-Za-z0-9]+", "-", self.key or self.group).strip("-").lower()


class _Kept:
    """Secrets that were typed, until what they belong to is saved: they stand in no page."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Sequence[SettingChange]]] = OrderedDict()

    def put(self, changes: Sequence[SettingChange]) -> str:
        """Keep them for a while; their name."""
        if not changes:
            return ""
        name = secrets.token_urlsafe(16)
        self._kept[name] = (self._clock() + _KEPT_S, changes)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return name

    def get(self, name: str) -> Sequence[SettingChange]:
        """They again, for as long as they are kept.

        Raises:
            Refused: they are not kept any more.
        """
        if not name:
            return ()
        ends_at, changes = self._kept.get(name, (0.0, ()))
        if self._clock() > ends_at:
            raise Refused("The secrets that you typed are forgotten by now. Type them again.")
        return changes

    def forget(self, name: str) -> None:
        """They are saved."""
        self._kept.pop(name, None)


_KEPT = _Kept()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What of the settings is shown.

    Attributes:
        show: `changed` shows what stands in the file.
        typed, errors: by key.
        new: a name that is offered for a new model.
        theirs: what somebody else changed meanwhile, from and to.
        problem: what is wrong, and with no key of the page.
    """

    found: SettingsList
    show: str
    group: str = ""
    query: str = ""
    new: str = ""
    typed: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    theirs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    problem: str = ""

    @classmethod
    def of(cls, found: SettingsList, asked: Mapping[str, str]) -> View:
        """What an address or a form asks for."""
        is_changed = any(one.is_set for one in found.settings)
        show = asked.get("show", "") or ("changed" if is_changed and not asked.get("group") else "all")
        return cls(
            found=found,
            show=show,
            group=asked.get("group", ""),
            query=asked.get("q", "").strip(),
            new=asked.get("new", ""),
        )

    @property
    def address(self) -> str:
        """Of the page that shows it."""
        asked = {"show": self.show, "group": self.group, "q": self.query}
        return f"{PAGE.path}?{urlencode({name: value for name, value in asked.items() if value})}"

    @property
    def blocks(self) -> list[Block]:
        """The forms of the page, in order."""
        found: dict[tuple[str, str], list[Setting]] = {}
        for one in self.found.settings:
            if self._shows(one):
                found.setdefault((one.group, _entry_of(one.key)), []).append(one)
        return [
            Block(
                group=group,
                key=entry,
                fields=fields_of(settings, typed=self.typed, errors=self.errors, below=entry),
            )
            for (group, entry), settings in found.items()
        ]

    @property
    def entries(self) -> Sequence[Setting]:
        """Sections with chosen names that the page shows."""
        return [one for one in self.found.settings if one.control == "entries" and self._is_in(one)]

    def _is_in(self, one: Setting) -> bool:
        words = self.query.lower().split()
        text = f"{one.key} {one.text} {one.group}".lower()
        return (not self.group or one.group == self.group) and all(word in text for word in words)

    def _shows(self, one: Setting) -> bool:
        if one.control == "entries" or one.key.startswith(tuple(f"{key}." for key in _ELSEWHERE)):
            return False
        return self._is_in(one) and (self.show == "all" or one.is_set or one.key in self.errors or bool(self.query))


def _entry_of(key: str) -> str:
    """The entry with a chosen name to which a key belongs; empty where it belongs to none."""
    for section in _NEW:
        if key.startswith(f"{section}."):
            name = re.match(r'"(?:[^"\\\\]|\\\\.)*"|[^.]+', key[len(section) + 1 :])
            return f"{section}.{name[0]}" if name else ""
    return ""


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """The settings, as forms."""
    found = await context.services.settings.listed(context.caller)
    return _page(context, request, View.of(found, request.query_params))


@PAGE.form("/change")
async def change(context: PageContext, request: Request, form: Form) -> Response:
    """Show what a form would change, or what is wrong with it beside each field."""
    found = await context.services.settings.listed(context.caller)
    view = View.of(found, dict(form.fields))
    settings = await _settings_of(context, form, found)
    changes = [*changes_in(form, settings), *_KEPT.get(form.get("kept"))]
    if not changes:
        return context.go(request, view.address, "Nothing was changed.")
    typed = typed_in(form, settings)
    try:
        proposal = await context.services.settings.proposed(context.caller, ChangeSettings(changes=tuple(changes)))
    except (Malformed, Refused) as error:
        return await _again(context, request, form, view, typed, problem=str(error))
    if proposal.problems:
        return await _again(context, request, form, view, typed, problems=proposal.problems)
    kept = [one for one in changes if one.secret is not None]
    return _review(context, request, view, proposal, [*_carried(form), ("kept", _KEPT.put(kept))])


@PAGE.form("/save")
async def save(context: PageContext, request: Request, form: Form) -> Response:
    """Write what was shown."""
    found = await context.services.settings.listed(context.caller)
    view, settings = View.of(found, dict(form.fields)), await _settings_of(context, form, found)
    try:
        changes = [*changes_in(form, settings), *_KEPT.get(form.get("kept"))]
        body = ChangeSettings(version=form.get("version"), changes=tuple(changes))
        saved = await context.services.settings.saved(context.caller, body)
    except SettingsChanged:
        fields, theirs = merged(form, settings)
        return await _again(context, request, form, view, fields, theirs=theirs, is_conflict=True)
    except (Malformed, Refused) as error:
        return await _again(context, request, form, view, typed_in(form, settings), problem=str(error))
    _KEPT.forget(form.get("kept"))
    return _saved(context, request, view, saved)


@PAGE.form("/add")
async def add(context: PageContext, request: Request, form: Form) -> Response:
    """The form for a new entry with a chosen name."""
    section, name = form.get("section"), form.get("name").strip()
    if section not in _NEW:
        raise Refused(f"no entries are added to {section} here")
    found = await context.services.settings.listed(context.caller)
    view = View.of(found, dict(form.fields))
    if not name:
        return context.go(request, view.address, "Give the new entry a name.", is_problem=True)
    settings = await _new_settings(context, section, name)
    if any(one.key == settings[0].key and one.is_set for one in found.settings):
        return context.go(request, view.address, f"There is {section}.{name} already.", is_problem=True)
    fields = fields_of(settings, below=_entry_of(settings[0].key))
    return _new_page(context, request, view, fields, section=section, name=name)


@PAGE.form("/remove")
async def remove(context: PageContext, request: Request, form: Form) -> Response:
    """Show what taking an entry out would change."""
    found = await context.services.settings.listed(context.caller)
    view, key = View.of(found, dict(form.fields)), form.get("entry")
    body = ChangeSettings(changes=(SettingChange(key=key, is_removed=True),))
    proposal = await context.services.settings.proposed(context.caller, body)
    if proposal.problems:
        text = "; ".join(f"{one.key}: {one.problem}" for one in proposal.problems)
        return context.go(request, view.address, f"{key} cannot be removed. {text}", is_problem=True)
    return _review(context, request, view, proposal, [(f"remove:{key}", "yes"), *_carried(form)])


@PAGE.form("/undo", back=PAGE.path)
async def undo(context: PageContext, request: Request, form: Form) -> Response:
    """Take the last change back, once it was seen."""
    found = await context.services.settings.listed(context.caller)
    view = View.of(found, dict(form.fields))
    if not form.is_confirmed:
        proposal = await context.services.settings.proposed_undo(context.caller)
        return context.render(
            request,
            "settings/review.html",
            title="Undo the last change?",
            trail=[(PAGE.title, view.address)],
            action=f"{PAGE.path}/undo",
            proposal=proposal,
            fields=[("confirmed", "yes"), ("version", proposal.version)],
            back=view.address,
            yes="Undo it",
        )
    done = await context.services.settings.undone(context.caller, form.get("version") or None)
    return _saved(context, request, view, done)


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


@PAGE.form("/restart", back=PAGE.path)
async def restart(context: PageContext, request: Request, form: Form) -> Response:
    """End what runs and begin again, once that is confirmed."""
    done = await context.services.settings.restarted(context.caller) if form.is_confirmed else None
    return context.render(
        request,
        "settings/restart.html",
        title="Restart the gateway?" if done is None else "The gateway restarts",
        trail=[(PAGE.title, PAGE.path)],
        done=done,
        started_at=(await context.services.system.health(context.caller)).started_at,
    )


async def _settings_of(context: PageContext, form: Form, found: SettingsList) -> Sequence[Setting]:
    """Those that a form may change: all, or those of a new entry."""
    section, name = form.get("section"), form.get("name").strip()
    if section in _NEW and name:
        return await _new_settings(context, section, name)
    keys = {one.key for one in found.settings}
    gone = [name.partition(":")[2] for name, _ in form.fields if name.startswith("remove:")]
    return [*found.settings, *(_bare(key) for key in gone if key not in keys)]


def _bare(key: str) -> Setting:
    """A whole entry, for a form that takes it out."""
    return Setting.model_construct(key=key, control="yaml", default=None, is_set=True)


async def _new_settings(context: PageContext, section: str, name: str) -> list[Setting]:
    path = tuple(section.split("."))
    found = await context.services.settings.described(context.caller, path, name, {})
    return [one for one in found if one.key.rpartition(".")[2] in _NEW[section]]


async def _again(
    context: PageContext,
    request: Request,
    form: Form,
    view: View,
    typed: Mapping[str, str],
    *,
    problem: str = "",
    problems: Sequence[SettingProblem] = (),
    theirs: Mapping[str, tuple[str, str]] | None = None,
    is_conflict: bool = False,
) -> Response:
    """The form once more, with all that was typed, and what is wrong beside each field."""
    settings = await _settings_of(context, form, view.found)
    written = {one.key.replace('"', ""): one.key for one in settings}
    errors = {written[one.key]: one.problem for one in problems if one.key in written}
    others = [f"{one.key}: {one.problem}" if one.key else one.problem for one in problems if one.key not in written]
    text = "; ".join([*([problem] if problem else []), *others])
    section, name = form.get("section"), form.get("name").strip()
    if section in _NEW and name:
        fields = fields_of(settings, typed=typed, errors=errors, below=_entry_of(settings[0].key))
        return _new_page(context, request, view, fields, section=section, name=name, problem=text)
    shown = View(
        found=view.found,
        show="all" if view.show == "all" or errors else view.show,
        group=view.group,
        query=view.query,
        typed=typed,
        errors=errors,
        theirs=theirs or {},
        problem=text,
    )
    return _page(context, request, shown, is_conflict=is_conflict, kept=form.get("kept"))


def _page(context: PageContext, request: Request, view: View, *, is_conflict: bool = False, kept: str = "") -> Response:
    is_wrong = bool(view.errors or view.problem)
    return context.render(
        request,
        "settings/index.html",
        title=PAGE.title,
        status=409 if is_conflict else 422 if is_wrong else 200,
        view=view,
        found=view.found,
        is_conflict=is_conflict,
        kept=kept,
        elsewhere=_ELSEWHERE,
        addable=_NEW,
        counts={
            group: sum(one.is_set for one in view.found.settings if one.group == group) for group in view.found.groups
        },
    )


def _new_page(
    context: PageContext,
    request: Request,
    view: View,
    fields: Sequence[Field],
    *,
    section: str,
    name: str,
    problem: str = "",
) -> Response:
    return context.render(
        request,
        "settings/new.html",
        title=f"{section}.{name}",
        trail=[(PAGE.title, view.address)],
        status=422 if problem or any(one.error for one in fields) else 200,
        view=view,
        section=section,
        name=name,
        fields=fields,
        problem=problem,
    )


def _carried(form: Form) -> list[tuple[str, str]]:
    names = ("section", "name", "show", "group", "q")
    return [*carried(form), *((name, form.get(name)) for name in names if form.get(name))]


def _review(
    context: PageContext,
    request: Request,
    view: View,
    proposal: SettingsProposal,
    fields: Sequence[tuple[str, str]],
) -> Response:
    return context.render(
        request,
        "settings/review.html",
        title="Save this?",
        trail=[(PAGE.title, view.address)],
        action=f"{PAGE.path}/save",
        proposal=proposal,
        fields=[*fields, ("version", proposal.version)],
        back=view.address,
        yes="Save",
    )


def _saved(context: PageContext, request: Request, view: View, saved: SettingsSaved) -> Response:
    context.live.changed("channels")
    again = Undo(action=f"{PAGE.path}/undo", fields=[("confirmed", "yes"), ("version", saved.version)])
    if saved.problems:
        text = "Saved, but the gateway goes on without it: " + "; ".join(saved.problems)
        return context.go(request, view.address, text, undo=again, is_problem=True)
    told = ["Saved."]
    told += [f"In force now: {', '.join(saved.at_once)}."] if saved.at_once else []
    told += [f"After a restart: {', '.join(saved.at_restart)}."] if saved.at_restart else []
    told += [f"{note[:1].upper()}{note[1:]}." for note in saved.notes]
    return context.go(request, view.address, " ".join(told), undo=again)
