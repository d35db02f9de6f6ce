"""What people are told about linking. Names that somebody chose are shown as code, so that they can form no markup."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from gateway.domain import command_text
from gateway.domain.channels import Channels
from gateway.domain.command_text import typed
from gateway.domain.visible import as_name
from gateway.messages import Action, OutboundMessage
from gateway.people.identity.file import clean_label
from gateway.people.linking.links import Link, LinkRequest, Party
from gateway.protocols import ChannelAdapter

USAGE = (
    "- `/link` gives you a code, and says how to type it on your other channel.\n"
    "- `/link yes` or `/link no` answers the question whether an account is yours."
)
ONLY_CLAIMED = (
    "This channel does not prove well enough who writes, so it cannot start or confirm a link. "
    "Type `/link` on a channel where you are logged in, and bring the code here."
)
NOT_BY_PROGRAM = "A program neither links accounts nor undoes a link. Do it yourself, in a chat with me."
NOT_KNOWN_NOW = "I cannot tell now what this channel proves. Please try again in a minute."
OVER = "That code is over. Ask for a new one on your other channel."
OWN_CODE = "This is the account that asked for the code. Type it on the other one; it is still good."
ALREADY_ONE = "Both accounts are you already: `/whoami` shows all of them."
NOT_STARTER = "The yes must come from the account on which `/link` was typed first; the question is there."
NOT_TYPED_YET = "The code has not been typed yet. It is good for 10 minutes."
NOTHING_ASKED = "There is no question to answer. `/link` starts a new one."
BUSY = "An earlier change of your accounts is still being carried out. Please try again in a minute."
GONE = "The other account is not in the identity map any more. Nothing was changed; start again with `/link`."
NOT_A_CODE = (
    "That is no code: a code has eight characters, such as `K7RM-3XPT`. Look again, or ask for a new one where you got "
    "it. `yes` and `no` are what else there is."
)
LINKED_ALREADY = "You have said yes already. `/whoami` shows your accounts."
LINKING = "Yes. I am linking them, and tell you on both when it is done."
REFUSED = "No. Nothing was changed, and the code is void."
NOTHING_TO_UNDO = "There is no link of yours that `/unlink` could take back."
UNLINKING = "I am taking it back, and tell you on both when it is done."
KEPT_APART = "What is remembered of the two is kept apart, because the memory of this gateway cannot unite them."
NOT_BY_LETTER = "This channel does not prove well enough who writes. Type `/unlink` on one of your other accounts."


def in_form(message: OutboundMessage, channels: Channels) -> OutboundMessage:
    """The message with commands as they are typed where it is read."""
    capabilities = channels.capabilities(message.conversation.channel)
    return replace(message, text=command_text.in_form(message.text, capabilities))


def barred(account: str) -> str:
    """The answer to a yes whose other side, or one's own, lost its access after the code was typed."""
    return f"`{account}` has no access any more, so nothing was linked. An owner can let it in; then say yes again."


def code_given(code: str, channels: Collection[ChannelAdapter]) -> str:
    """The answer to `/link`: what to type, in every form that there is on the channels."""
    kinds: dict[str, list[str]] = {f"/link {code}": []}  # also for a channel that is added meanwhile
    for channel in sorted(channels, key=lambda one: one.kind):
        kinds.setdefault(typed(f"link {code}", channel.capabilities), []).append(channel.kind)
    where = "On your other channel, in a direct chat with me, type within 10 minutes:"
    forms = [
        f"{f'On {_listed(of)}:' if number else where}\n\n```\n{form}\n```"
        for number, (form, of) in enumerate(kinds.items())
    ]
    return "\n\n".join(forms) + (
        "\n\nThen I ask you here whether that account is yours. Keep the code to yourself: who types it asks to be you."
    )


def question(request: LinkRequest, *, is_united: bool) -> OutboundMessage:
    """Whether the account that typed the code is the starter's own."""
    memory, apart = (", with one memory", "") if is_united else ("", f"{KEPT_APART} ")
    if request.redeemer is None or request.starter.conversation is None:
        raise ValueError(f"request {request.id} was not redeemed")
    return OutboundMessage(
        id=f"{request.id}.question",
        conversation=request.starter.conversation,
        text=f"Your code was typed. Link {shown(request.redeemer)}?\n\n"
        f"Both accounts are then one person{memory}: each sees what the other told me. "
        f"{apart}`/link yes` or `/link no`; without an answer in 10 minutes nothing changes.",
        actions=(
            Action(id=f"link yes {request.id}", label="Yes, it is me"),
            Action(id=f"link no {request.id}", label="No"),
        ),
    )


def prove(request: LinkRequest, code: str) -> str:
    """The answer to a letter that brought a code; only who can read it gets any further."""
    return (
        f"{shown(request.starter)} wants to be one person with you, and would then see all that you told me. "
        "Nothing is linked yet.\n\n"
        f"If that account is yours, answer this within 10 minutes with:\n\n`/link {code}`\n\n"
        "If it is not, do nothing. Keep the code to yourself."
    )


def asked(request: LinkRequest) -> str:
    """The answer to the person who typed the code."""
    return (
        f"I am asking {shown(request.starter)} whether you are the same person. Nothing changes before the yes there. "
        "If somebody else gave you the code, type `/link no`: the person who says yes sees what you told me."
    )


def refused(request: LinkRequest, by: str) -> OutboundMessage | None:
    """For the other side; None where that side does not know of the request."""
    other = request.redeemer if by == request.starter.account else request.starter
    if other is None or other.conversation is None:
        return None
    return OutboundMessage(
        id=f"{request.id}.refused",
        conversation=other.conversation,
        text="The accounts were not linked: the other side said no. Nothing was changed.",
    )


def wrong_code(tries_left: int) -> str:
    """The answer to a code that there is not."""
    left = f"{tries_left} more {'try' if tries_left == 1 else 'tries'}" if tries_left else "no more tries"
    return f"There is no such code, or it is over: it works once, for 10 minutes. You have {left} for now."


def too_many(again_in_s: float) -> str:
    """The answer to one try too many."""
    return f"Too many wrong codes. Try again in {max(1, round(again_in_s / 60))} minutes."


def linked(link: Link, *, is_united: bool) -> list[OutboundMessage]:
    """For both sides, when it is done."""
    names = " and ".join(shown(party) for party in link.parties)
    memory = ", with one memory. What I knew of both is together." if is_united else f". {KEPT_APART}"
    text = (
        f"Linked: {names} are one person now{memory} "
        f"If that was not you, or was a mistake: `/unlink` takes it back, until {day(link.undo_until)}."
    )
    return _to_all(link, "linked", text)


def unlinked(link: Link, *, is_changed: bool) -> list[OutboundMessage]:
    """For both sides, when it is done."""
    names = " and ".join(shown(party) for party in link.parties)
    text = f"No longer linked: {names} are two people again, as before the link."
    if is_changed:
        text += f" What was noted since the link stays with {_kept_by(link)}; the other one's notes are as they were."
    return _to_all(link, "unlinked", text)


def link_line(link: Link, now: datetime) -> str:
    """One line of `/whoami`."""
    accounts = ", ".join(f"`{account.key}`" for account in link.accounts) or f"`{link.absorbed}`"
    until = f"; `/unlink` takes it back until {day(link.undo_until)}" if now < link.undo_until else ""
    return f"- linked on {day(link.linked_at)}: {accounts}{until}"


def shown(party: Party) -> str:
    """An account for people: the kind of channel, the account's own id, and its name."""
    kind, _, account = party.account.partition(":")
    named = f", {as_name(party.label)}" if party.label not in {"", account} else ""
    return f"{_code(kind)} account {_code(account)}{named}"


def _listed(kinds: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(kinds))


def day(moment: datetime) -> str:
    """A moment to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _code(text: str) -> str:
    return f"`{clean_label(text).replace('`', chr(39)) or '?'}`"


def _kept_by(link: Link) -> str:
    moved = {account.key for account in link.accounts}
    kept = [party for party in link.parties if party.account not in moved]
    return shown(kept[0]) if kept else f"`{link.survivor}`"


def _to_all(link: Link, kind: str, text: str) -> list[OutboundMessage]:
    places = dict.fromkeys(party.conversation for party in link.parties if party.conversation is not None)
    return [
        OutboundMessage(id=f"{link.id}.{kind}.{number}", conversation=place, text=text)
        for number, place in enumerate(places)
    ]
