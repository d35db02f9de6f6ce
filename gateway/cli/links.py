"""What `ethos people link`, `merge`, `unlink` and `show` do, beside a running gateway or without one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway.app.control import NotReached, ask
from gateway.cli.data import opened_memory, opened_store, operator_config
from gateway.cli.named import NotNamed, find_user, identities
from gateway.cli.output import print_json, print_table, say
from gateway.config.file import CONFIG_NAME
from gateway.domain.sessions import LOCAL
from gateway.errors import EthosError, StoreError
from gateway.files.home import LOCK_NAME, data_directory
from gateway.files.locks import hold
from gateway.files.positions.yaml import read_marked_yaml
from gateway.files.running_gateway import running_gateway
from gateway.memory.linked_notes import linking_on
from gateway.messages import Capabilities, ConversationRef
from gateway.people.identity.file import check_key
from gateway.people.linking.links import NotLinked
from gateway.people.linking.operator import link_json, operate
from gateway.people.linking.texts import day

# Whoever is answered just now may still be writing notes, and a link waits for that.
TIMEOUT_S = 60.0
_CAPABILITIES = Capabilities(max_text_chars=0)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A channel of the configuration, as far as a command needs it."""

    kind: str
    capabilities: Capabilities = _CAPABILITIES


@dataclass(frozen=True, slots=True)
class _Configured:
    """The channels, which are not connected."""

    all: Mapping[str, _Kind]


class _NotSending:
    """What is to be sent waits for the gateway's next start."""

    def wake(self, conversation: ConversationRef) -> None:
        """There is nothing to wake."""


async def link_users(one: str, other: str, *, is_one_kept: bool, as_json: bool) -> None:
    """Make two users one; an account that has not written yet is simply written down.

    Raises:
        NotLinked: says why.
    """
    home = data_directory()
    first = await find_user(home, one)
    if ":" in other and not await _is_known(home, other):
        await _add_account(home, check_key(other), first, as_json=as_json)
        return
    request = {"what": "link", "one": one, "other": other, "is_one_kept": is_one_kept}
    link = await _carried_out(home, request)
    if as_json:
        print_json(link)
        return
    until = day(datetime.fromisoformat(link["undo_until"]))
    if link["state"] == "linked":
        say(f"Linked: {', '.join(link['accounts'])} belong to {link['survivor']} now.")
    else:
        say("Decided. It is finished when the answers that are being written have ended.")
    say(_told(home, link))
    say(f"`ethos people unlink {link['absorbed']}` takes it back; they can themselves until {until}.")


async def unlink_user(which: str, *, as_json: bool) -> None:
    """Take a link back.

    Raises:
        NotLinked: says why.
    """
    home = data_directory()
    link = await _carried_out(home, {"what": "unlink", "which": which})
    if as_json:
        print_json(link)
        return
    say(f"No longer linked: {link['absorbed']} has {', '.join(link['accounts']) or 'no accounts'} again.")
    say(_told(home, link))


async def show_user(wanted: str, *, as_json: bool) -> None:
    """Print one person: accounts and links.

    Raises:
        NotNamed: there is none.
    """
    home = data_directory()
    user_id = await find_user(home, wanted)
    user = next((one for one in await identities(home).users() if one.id == user_id), None)
    async with opened_store(home) as store:
        ids = [user_id] if store is None else await store.links.person_ids(user_id)
        links = [] if store is None else await store.links.links(ended_too=True)
    links = [link for link in links if link.absorbed in ids or link.survivor in ids]
    accounts = user.accounts if user else ()
    if as_json:
        shown = [
            {"key": one.key, "label": one.label, "first_seen_at": one.first_seen_at, "via": one.via} for one in accounts
        ]
        print_json({"id": user_id, "ids": ids, "accounts": shown, "links": [link_json(link) for link in links]})
        return
    say(f"{user_id}" + (f", with what {', '.join(ids[1:])} wrote before" if ids[1:] else ""))
    if accounts:
        rows = [(one.key, one.label, one.first_seen_at, one.via) for one in accounts]
        print_table(("account", "name", "since", "via"), rows, flexible=("account", "name"))
    if links:
        say("")
        rows_of_links = [
            (link.id, link.linked_at, link.absorbed, link.survivor, link.by, link.state, link.undo_until)
            for link in links
        ]
        columns = ("link", "since", "was", "is", "by", "state", "undo until")
        print_table(columns, rows_of_links, flexible=("was", "is"))


async def _carried_out(home: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The running gateway does it, or we in its place while none runs; the link.

    Raises:
        NotLinked, StoreError: says why.
    """
    if running_gateway(home) is not None:
        try:
            answer = await asyncio.to_thread(ask, home, {"do": "links", **request}, timeout_s=TIMEOUT_S)
        except NotReached as error:
            raise NotLinked(str(error)) from error
        return _link_of(answer)
    config = operator_config(home)
    lock = hold(home / LOCK_NAME)
    try:
        async with opened_store(home) as store, opened_memory(home, config, is_written=True) as memory:
            if store is None:
                raise NotNamed("there are no users yet; the first person who writes becomes one")
            kinds = _channels(home)
            linking = linking_on(memory, store.links, identities(home), _Configured(kinds), _NotSending())
            try:
                await memory.replay()
                await linking.recover()
                return _link_of(await operate(linking, request))
            finally:
                await linking.close()
    finally:
        lock.release()


def _link_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    link = answer["link"]
    if not isinstance(link, dict):
        raise StoreError("the running gateway's answer cannot be read; is it of another version?")
    return link


async def _is_known(home: Path, account: str) -> bool:
    return any(one.key == account for user in await identities(home).users() for one in user.accounts)


async def _add_account(home: Path, account: str, user_id: str, *, as_json: bool) -> None:
    """An account that nobody has met has nothing to be united, and nobody to be told."""
    if not await identities(home).add(account, "", user_id=user_id, via="operator"):
        raise NotLinked(f"{account} has just become known; try again")
    if as_json:
        print_json({"account": account, "user": user_id})
    else:
        say(f"{account} is {user_id}, from its first message on. To take it back, remove its line from the map.")


def _channels(home: Path) -> Mapping[str, _Kind]:
    """The kinds of the channels, without looking their secrets up."""
    try:
        channels = read_marked_yaml(home / CONFIG_NAME, CONFIG_NAME).values.get("channels")
    except (EthosError, FileNotFoundError):
        channels = None
    kinds = {
        str(name): _Kind(str(channel["kind"]).rpartition(".")[2])
        for name, channel in (channels.items() if isinstance(channels, dict) else ())
        if isinstance(channel, dict) and "kind" in channel
    }
    return {**kinds, LOCAL: _Kind(LOCAL)}


def _told(home: Path, link: Mapping[str, Any]) -> str:
    if not link["told"]:
        return "They are not told: no direct chat with them is known."
    when = "Told" if running_gateway(home) is not None else "To be told when the gateway starts"
    return f"{when}: {', '.join(link['told'])}."
