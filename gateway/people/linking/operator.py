"""What an operator may do about links without anybody's code: link, merge, unlink. Both sides are told all the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from gateway.people.linking.chat import Linking
from gateway.people.linking.links import Link, NotLinked


def operating(linking: Linking) -> Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]:
    """`operate` on the links of a running gateway."""
    return partial(operate, linking)


async def operate(linking: Linking, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Do what a command asks for; the link as JSON has it.

    ::

        {"what": "link", "one": "u_1", "other": "telephone:42", "is_one_kept": false}
        {"what": "unlink", "which": "telephone:42"}

    Raises:
        NotLinked: it cannot be done; says why.
    """
    if request["what"] == "link":
        link = await make_link(linking, request["one"], request["other"], is_one_kept=bool(request["is_one_kept"]))
    else:
        link = await end_link(linking, request["which"])
    return {"link": link_json(link)}


async def make_link(linking: Linking, one: str, other: str, *, is_one_kept: bool) -> Link:
    """Make two known users one; how far it is when it is done, or after some seconds.

    Raises:
        NotLinked: it cannot be done; says why.
    """
    users = [await linking.user(name) for name in (one, other)]
    parties = tuple([await linking.whereabouts(user) for user in users])
    link = await linking.decide(one, other, parties, by="operator", request_id=None, is_one_kept=is_one_kept)
    return await linking.finish(link)


async def end_link(linking: Linking, which: str) -> Link:
    """End a link, named by its own id, or by an account that came in with it; however old it is.

    Raises:
        NotLinked: there is none, or it is still being carried out.
    """
    links = await linking.all_links()
    named = [link for link in links if which in (link.id, link.absorbed, *(one.key for one in link.accounts))]
    if not named:
        raise NotLinked(f"there is no link of {which}; `ethos people show` lists those of a user")
    ended = await linking.end(named[0])
    if ended is None:
        raise NotLinked(f"link {named[0].id} is still being carried out; try again in a minute")
    return await linking.finish(ended)


def link_json(link: Link) -> Mapping[str, Any]:
    """A link as programs read it."""
    return {
        "id": link.id,
        "survivor": link.survivor,
        "absorbed": link.absorbed,
        "accounts": [account.key for account in link.accounts],
        "by": link.by,
        "linked_at": link.linked_at.isoformat(),
        "undo_until": link.undo_until.isoformat(),
        "state": link.state,
        "told": [party.account for party in link.parties if party.conversation is not None],
    }
