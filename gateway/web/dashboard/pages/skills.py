"""Skills: which there are, what is in them, and how one is added, trusted and removed."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import EthosError
from gateway.services.caller import Refused
from gateway.services.skills import MAX_ZIP_BYTES
from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.forms import TOKEN_FIELD, Form, read_upload

PAGE = Page(name="skills", title="Skills", icon="skills", position=58)

STATES: Mapping[str, tuple[str, str]] = {
    "trusted": ("Trusted", "ok"),
    "new": ("Withheld: new", "warn"),
    "changed": ("Withheld: changed", "warn"),
    "hidden": ("Hidden by a nearer one", ""),
    "left_out": ("Left out", "bad"),
}


@PAGE.route()
async def show(context: PageContext, request: Request) -> Response:
    """All of them, and the form for another one."""
    return context.render(
        request,
        "skills/index.html",
        title=PAGE.title,
        skills=await context.services.skills.listed(context.caller),
        states=STATES,
        max_bytes=MAX_ZIP_BYTES,
    )


@PAGE.route("/of/{skill}")
async def one(context: PageContext, request: Request) -> Response:
    """One of them, with all that a person looks at before they trust it."""
    personality = request.query_params.get("personality") or None
    skill = await context.services.skills.shown(context.caller, request.path_params["skill"], personality)
    return context.render(
        request,
        "skills/one.html",
        title=skill.name,
        trail=[(PAGE.title, PAGE.path)],
        skill=skill,
        states=STATES,
        place=_place(skill.name, skill.personality),
    )


@PAGE.route("/add", method="POST")
async def add(context: PageContext, request: Request) -> Response:
    """Put a ZIP in place, withheld. It is received only when the token before it is known to be right."""
    upload = _Upload()

    async def begin(form: Form, _name: str) -> _Upload:
        if not context.has_valid_csrf_token(request, form.get(TOKEN_FIELD)):
            raise HTTPException(403, "This page is too old. Reload it, then choose the file again.")
        return upload

    try:
        form = await read_upload(request, begin)
        if not context.has_valid_csrf_token(request, form.get(TOKEN_FIELD)):
            return context.offer_again(request, form, request.url.path)
        if not upload.data:
            raise Refused("Choose a file first.")
        skill = await context.services.skills.added(
            context.caller,
            bytes(upload.data),
            personality=form.get("personality").strip() or None,
            replaces=form.has("replace"),
            pin=None,
        )
    except EthosError as error:
        return context.go(request, PAGE.path, str(error), is_problem=True)
    text = f"{skill.name} is there, and withheld. Look at it, and trust it if you want the agent to have it."
    return context.go(request, _place(skill.name, skill.personality), text)


@PAGE.form("/trust", back=PAGE.path)
async def trust(context: PageContext, request: Request, form: Form) -> Response:
    """Let the agent have it, as the page has shown it."""
    name, personality = form.get("skill"), form.get("personality") or None
    await context.services.skills.trusted(context.caller, name, personality, form.get("pin"))
    return context.go(request, _place(name, personality), f"The agent has {name}.")


@PAGE.form("/remove", back=PAGE.path)
async def remove(context: PageContext, request: Request, form: Form) -> Response:
    """Trust it no more, and delete its files, once that is confirmed."""
    name, personality = form.get("skill"), form.get("personality") or None
    if not form.is_confirmed:
        text = "The agent does not have it any more, and its files are deleted if the gateway put them there."
        back = _place(name, personality)
        return context.ask(request, form, title=f"Remove {name}?", text=text, yes="Remove", back=back)
    done = await context.services.skills.removed(context.caller, name, personality)
    left = "" if done.is_deleted or done.directory is None else f" Its files stay in {done.directory}."
    return context.go(request, PAGE.path, f"{name} is removed.{left}")


class _Upload:
    """A ZIP that comes."""

    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, chunk: bytes) -> None:
        """Take some more; raises `Refused` where it is too much."""
        self.data += chunk
        if len(self.data) > MAX_ZIP_BYTES:
            raise Refused(f"The file is larger than {MAX_ZIP_BYTES >> 20} MB.")


def _place(name: str, personality: str | None) -> str:
    whose = "" if personality is None else "?" + urlencode({"personality": personality})
    return f"{PAGE.path}/of/{quote(name, safe='')}{whose}"
