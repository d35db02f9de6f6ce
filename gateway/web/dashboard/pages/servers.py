"""Servers of tools: what they offer, what is withheld, and how one is added, tried, accepted and removed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from gateway.sdk.models.mcp import McpSandbox, NewMcpServer
from gateway.services.caller import Malformed, NotFound, Refused, ServiceError
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.tools import EFFECTS
from gateway.web.forms import Form

PAGE = Page(name="servers", title="Servers", icon="servers", position=57)

STATES: Mapping[str, tuple[str, str]] = {
    "up": ("Up", "ok"),
    "idle": ("Not needed now", ""),
    "connecting": ("Connecting", ""),
    "resting": ("Not reachable", "bad"),
}
ACCEPTANCE: Mapping[str, tuple[str, str]] = {
    "accepted": ("Accepted", "ok"),
    "new": ("Withheld: new", "warn"),
    "changed": ("Withheld: changed", "warn"),
}
SHOWN_LINES = 5
ADVANCED: Mapping[str, str] = {
    "tools": "",
    "effects": "",
    "trusted": "",
    "instructions": "",
    "approver": "owner",
    "timeout_s": "60",
    "start": "on_need",
    "protocol": "auto",
}
"""Fields that most servers do not need, and what stands in them at first."""
LABELS: Mapping[str, str] = {
    "name": "Name",
    "tools": "Tools that you want",
    "effects": "What its tools may do",
    "approver": "Who may say yes to a call",
    "timeout_s": "Seconds for one call",
    "start": "Started",
    "protocol": "Protocol",
}
"""What the form calls a field, by its key."""


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """All of them."""
    return context.render(
        request,
        "servers/index.html",
        title=PAGE.title,
        servers=await context.services.mcp.listed(context.caller),
        states=STATES,
    )


@PAGE.route("/of/{server}")
async def one(context: PageContext, request: Request) -> Response:
    """One of them, with its tools."""
    name = request.path_params["server"]
    servers = await context.services.mcp.listed(context.caller)
    server = next((server for server in servers if server.name == name), None)
    if server is None:
        raise NotFound(f"There is no server {name}; perhaps it was removed.")
    return context.render(
        request,
        "servers/one.html",
        title=server.name,
        trail=[(PAGE.title, PAGE.path)],
        server=server,
        labels=await context.services.naming.labels(),
        withheld=[tool for tool in server.tools if tool.state != "accepted"],
        said=server.said[-SHOWN_LINES:],
        states=STATES,
        acceptance=ACCEPTANCE,
        effects=EFFECTS,
    )


@PAGE.route("/add")
async def new(context: PageContext, request: Request) -> Response:
    """The forms for another one."""
    return _forms(context, request, Form())


@PAGE.form("/add")
async def add(context: PageContext, request: Request, form: Form) -> Response:
    """Write it into config.yaml, use it, and ask it for its tools."""
    try:
        server = _typed(form)
        change = await context.services.mcp.added(server)
    except ServiceError as error:
        return _forms(context, request, form, problem=str(error))
    done = ". ".join([f"{server.name} is added", *change.notes]) + "."
    try:
        await context.services.mcp.tested(server.name)
    except (NotFound, Refused) as error:
        return context.go(request, _place(server.name), f"{done} But {error}", is_problem=True)
    return context.go(request, _place(server.name), f"{done} Look at its tools, and accept those that you want.")


@PAGE.form("/test", back=PAGE.path)
async def test(context: PageContext, request: Request, form: Form) -> Response:
    """Connect it now."""
    name = form.get("server")
    server = await context.services.mcp.tested(name)
    return context.go(request, _place(name), f"{name} answers, with {_count(len(server.tools))}.")


@PAGE.form("/accept", back=PAGE.path)
async def accept(context: PageContext, request: Request, form: Form) -> Response:
    """Let the agent have one tool, or all that are withheld, as the page has shown them."""
    name = form.get("server")
    accepted = await context.services.mcp.accepted(name, form.get("tool") or None, form.get("pin"))
    return context.go(request, _place(name), f"The agent has {_count(len(accepted.tools))} more.")


@PAGE.form("/logout", back=PAGE.path)
async def logout(context: PageContext, request: Request, form: Form) -> Response:
    """Forget what somebody's sign-in gave, once that is confirmed."""
    name, user = form.get("server"), form.get("user")
    if not form.is_confirmed:
        text = "The gateway forgets the tokens and has them revoked. Whoever needs the server signs in again."
        return context.ask(request, form, title=f"Sign out of {name}?", text=text, yes="Sign out", back=_place(name))
    done = await context.services.mcp.logout(context.caller, name, user or None)
    what = "the tokens are revoked" if done.is_revoked else "the tokens could not be revoked, and end by their age"
    return context.go(request, _place(name), f"Signed out of {name}; {what}.")


@PAGE.form("/remove", back=PAGE.path)
async def remove(context: PageContext, request: Request, form: Form) -> Response:
    """Take it out of config.yaml, once that is confirmed."""
    name = form.get("server")
    if not form.is_confirmed:
        text = "It is taken out of config.yaml, and what you accepted of its tools is forgotten."
        return context.ask(request, form, title=f"Remove {name}?", text=text, yes="Remove", back=_place(name))
    change = await context.services.mcp.removed(name)
    return context.go(request, PAGE.path, ". ".join([f"{name} is removed", *change.notes]) + ".")


def _typed(form: Form) -> NewMcpServer:
    is_program = form.get("kind") == "program"
    typed = {
        "name": form.get("name").strip(),
        "command": _words(form.get("command")) if is_program else (),
        "url": None if is_program else form.get("url").strip(),
        "headers": _pairs("Headers", form.get("headers"), ":"),
        "env": _pairs("Variables", form.get("env"), "="),
        "sandbox": McpSandbox(
            write=_lines(form.get("write")),
            read=_lines(form.get("read")),
            network="none" if form.get("network") == "none" else "open",
        ),
        "effects": _effects(form),
        "tools": _lines(form.get("tools")) or None,
        "trusted": form.has("trusted"),
        "instructions": form.has("instructions"),
        **{name: form.get(name).strip() or default for name, default in ADVANCED.items() if default},
    }
    try:
        return NewMcpServer.model_validate(typed)
    except ValidationError as error:
        wrong = "; ".join(f"{_label(one['loc'])}: {one['msg']}" for one in error.errors())
        raise Malformed(wrong) from error


def _label(place: Sequence[int | str]) -> str:
    """What the form calls a field."""
    return LABELS.get(str(place[0]), ".".join(map(str, place)))


def _effects(form: Form) -> str | dict[str, str]:
    found = _pairs(LABELS["effects"], form.get("effects"), "=")
    for pattern, effect in found.items():
        if effect not in EFFECTS:
            expected = ", ".join(EFFECTS)
            raise Malformed(f"{LABELS['effects']}: {pattern}={effect}: expected one of {expected}.")
    if found and form.has("hints"):
        raise Malformed(f"{LABELS['effects']}: leave it empty, or do not believe what the server says its tools do.")
    return "hints" if form.has("hints") else found


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise Malformed(f"The command cannot be read: {error}; close each quote that you open.") from error


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _pairs(label: str, text: str, sign: str) -> dict[str, str]:
    """Each line a name and a value."""
    found = {}
    for line in _lines(text):
        name, is_there, value = line.partition(sign)
        if not is_there:
            raise Malformed(f"{label}: a line has no `{sign}`; expected `NAME{sign}value`, one in each line.")
        found[name.strip()] = value.strip()
    return found


def _forms(context: PageContext, request: Request, form: Form, *, problem: str | None = None) -> Response:
    return context.render(
        request,
        "servers/add.html",
        title="Add a server",
        trail=[(PAGE.title, PAGE.path)],
        status=200 if problem is None else 409,
        typed=dict(form.fields),
        labels=LABELS,
        is_advanced=any(form.get(name, default) != default for name, default in ADVANCED.items()),
        problem=problem,
    )


def _place(name: str) -> str:
    return f"{PAGE.path}/of/{quote(name, safe='')}"


def _count(tools: int) -> str:
    return "1 tool" if tools == 1 else f"{tools} tools"
