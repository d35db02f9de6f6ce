"""Calls that wait for a yes: an operator reads every argument, decides, and takes grants back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from gateway.sdk.models.approvals import GrantScope, ToolApproval
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.tools import PAGE
from gateway.web.forms import Form, whole_number

APPROVALS = f"{PAGE.path}/approvals"
SHOWN_EXPIRED = 5
SCOPES: Mapping[str, GrantScope | None] = {"yes": None, "here": "conversation", "always": "always"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A call on the page; `arguments` are all of them, each as text."""

    approval: ToolApproval
    arguments: Sequence[tuple[str, str]]


@PAGE.route("/approvals")
async def show(context: PageContext, request: Request) -> Response:
    """Those that wait, oldest first, and the grants."""
    service = context.services.approvals
    return context.render(
        request,
        "tools/approvals.html",
        title="Approvals",
        trail=[(PAGE.title, PAGE.path)],
        waiting=[_waiting(one) for one in await service.listed(context.caller)],
        expired=[_waiting(one) for one in await service.listed_expired(context.caller, limit=SHOWN_EXPIRED)],
        grants=await service.listed_grants(context.caller),
        names=await context.names(),
    )


@PAGE.form("/approvals/decide", back=APPROVALS)
async def decide(context: PageContext, request: Request, form: Form) -> Response:
    """Have exactly the call made that was shown, or drop it."""
    number = whole_number(form.get("approval")) or 0
    decision = form.get("decision")
    is_yes = decision in SCOPES
    await context.services.approvals.decided(context.caller, number, is_yes=is_yes, scope=SCOPES.get(decision))
    context.live.changed("messages")
    done = "has its yes; the gateway does it now" if is_yes else "is dropped; it is never done"
    return context.go(request, APPROVALS, f"Number {number} {done}.")


@PAGE.form("/approvals/again", back=APPROVALS)
async def again(context: PageContext, request: Request, form: Form) -> Response:
    """Ask once more for a call that has expired."""
    asked = await context.services.approvals.asked_again(context.caller, whole_number(form.get("approval")) or 0)
    context.live.changed("messages")
    return context.go(request, APPROVALS, f"Number {asked.id} asks for it again.")


@PAGE.form("/approvals/revoke", back=APPROVALS)
async def revoke(context: PageContext, request: Request, form: Form) -> Response:
    """Ask again for what a grant covered."""
    await context.services.approvals.take_back(context.caller, whole_number(form.get("grant")) or 0)
    context.live.changed("messages")
    return context.go(request, APPROVALS, "Such calls are asked for again.")


def _waiting(approval: ToolApproval) -> Waiting:
    values = json.loads(approval.arguments).items()
    return Waiting(
        approval=approval,
        arguments=[
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for name, value in values
        ],
    )
