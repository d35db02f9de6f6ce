"""Converts what Slack delivers into the gateway's messages. Pure functions.

Shapes: https://docs.slack.dev/apis/events-api, https://docs.slack.dev/interactivity/implementing-slash-commands,
https://docs.slack.dev/reference/interaction-payloads/block_actions-payload
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.messages import Attachment, ConversationRef, InboundMessage, QuotedText, Sender, remaining_actions

_MESSAGE_EVENTS = frozenset({"message", "app_mention"})
# A message of these subtypes is still one that a person wrote: https://docs.slack.dev/reference/events/message
_WRITTEN_BY_PEOPLE = frozenset({None, "file_share", "thread_broadcast", "me_message"})
_WITHOUT_CONTENT = frozenset({"tombstone", "hidden_by_limit"})
_SLACKBOT = "USLACKBOT"
_CLIP = "slack_audio"  # recorded in Slack: https://docs.slack.dev/reference/objects/file-object (read 2026-11)
_TOKEN = re.compile(r"<([^<>\n]+)>")

BUTTON = "ethos-action-"
"""What the `action_id` of our buttons begins with."""

Payload = Mapping[str, Any]
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, OSError)
"""What these functions raise for a payload that is not as Slack describes it; a redelivery would be no better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Who we are, and where we are installed: the answer of `auth.test`.

    Attributes:
        enterprise: None outside of an Enterprise organisation.
        user: the bot's user id, which mentions name.
        name: what people type for it, behind an `@`.
        bot: the id that its own messages carry.
    """

    team: str
    enterprise: str | None
    user: str
    bot: str | None
    name: str = "Ethos"

    @property
    def organisation(self) -> str:
        """What a user id is unique in."""
        return self.enterprise or self.team

    def owns(self, workspace: str | None) -> bool:
        """The workspace or organisation is ours, or Slack does not name one."""
        return workspace is None or workspace in (self.team, self.enterprise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation as its events describe it. Its history does not, so the catch-up notes this.

    Attributes:
        kind: Slack's `channel_type`: `im`, `mpim`, `channel` or `group`.
        is_shared: with another organisation (Slack Connect).
    """

    channel: str
    kind: str
    is_shared: bool


def is_for_installation(app: Installation, envelope: Payload) -> bool:
    """The event was sent to our installation, not to another one of the same app."""
    installations = [envelope, *(envelope.get("authorizations") or ())]
    named = {each.get(key) for each in installations for key in ("team_id", "enterprise_id", "context_team_id")}
    named.discard(None)
    return not named or any(app.owns(each) for each in named)


def conversation_of(envelope: Payload) -> Conversation | None:
    """Where an event's message was written; None for an event without a message."""
    event = envelope["event"]
    if event.get("type") not in _MESSAGE_EVENTS or "channel" not in event:
        return None
    channel = str(event["channel"])
    kind = event.get("channel_type") or ("im" if channel.startswith("D") else "channel")
    return Conversation(channel=channel, kind=str(kind), is_shared=bool(envelope.get("is_ext_shared_channel")))


def conversation_in_list(conversation: Payload) -> Conversation:
    """A conversation as `users.conversations` lists it: https://docs.slack.dev/reference/objects/conversation-object."""
    kinds = ("im", "is_im"), ("mpim", "is_mpim"), ("group", "is_private")
    kind = next((kind for kind, key in kinds if conversation.get(key)), "channel")
    is_shared = bool(conversation.get("is_ext_shared"))
    return Conversation(channel=str(conversation["id"]), kind=kind, is_shared=is_shared)


def message_from_event(
    name: str, app: Installation, envelope: Payload, *, slack_connect: bool = False
) -> InboundMessage | None:
    """What a person wrote to us; None for everything else, such as bots, edits, and texts that do not mention us.

    One message can come as two events (`message` and `app_mention`, with different event ids), or under two timestamps.
    So our id of it is its `ts`, and our event id is the one that its author's client gave it, or else the event's: one
    of the two is the same every time.

    Args:
        name: of the channel in the configuration.
        slack_connect: take messages of other organisations in shared channels, too.
    """
    event, conversation = envelope["event"], conversation_of(envelope)
    if conversation is None or not _is_by_a_person(app, event):
        return None
    user, ts = str(event["user"]), str(event["ts"])
    team = _team_of_author(app, event, conversation)
    if not app.owns(team) and not slack_connect:
        return None
    thread = _ts(event.get("thread_ts"))
    is_direct = conversation.kind == "im"
    raw_text = str(event.get("text") or "")
    mentions_bot = mentions(app, event)
    shared = shared_in(event, app)
    given = [each for each in event.get("files") or () if each.get("mode") not in _WITHOUT_CONTENT]
    files = tuple(_attachment(each, user) for each in given)
    if not (is_direct or mentions_bot) or not (raw_text or files or shared):
        return None
    author_key = event.get("client_msg_id")
    event_id = str(envelope.get("event_id") or f"{conversation.channel}/{ts}")
    return InboundMessage(
        id=ts,
        event_id=f"{user}/{author_key}" if author_key else event_id,
        # In a channel the answer goes into the thread of the question, which begins there if there was none.
        conversation=ConversationRef(
            channel=name, conversation=conversation.channel, thread=thread if is_direct else thread or ts
        ),
        sender=_sender(name, app.organisation if app.owns(team) else team, user, event.get("user_profile")),
        text=plain_text(raw_text, app.user),
        sent_at=time_of(ts),
        is_direct=is_direct,
        mentions_bot=mentions_bot,
        reply_to=thread if thread not in (None, ts) else None,
        attachments=files,
        quotes=shared,
    )


def mentions(app: Installation, event: Payload) -> bool:
    """It mentions us, or is in a thread that we began."""
    text = str(event.get("text") or "")
    is_named = f"<@{app.user}>" in text or f"<@{app.user}|" in text
    return is_named or (event.get("thread_ts") is not None and event.get("parent_user_id") == app.user)


def is_readable(entry: Payload) -> bool:
    """An entry of a history has words that somebody wrote."""
    return not entry.get("hidden") and bool(entry.get("text") or entry.get("attachments"))


def shared_in(event: Payload, app: Installation) -> tuple[QuotedText, ...]:
    """Messages that were shared with this one: https://docs.slack.dev/messaging/formatting-message-text#attachments."""
    return tuple(
        QuotedText(
            origin="shared message",
            text=plain_text(str(each.get("text") or ""), app.user),
            author=str(each.get("author_name") or ""),
        )
        for each in event.get("attachments") or ()
        if (each.get("is_share") or each.get("is_msg_unfurl")) and each.get("text")
    )


def message_from_history(
    name: str, app: Installation, conversation: Conversation, message: Payload, *, slack_connect: bool = False
) -> InboundMessage | None:
    """As `message_from_event`, from an entry of `conversations.history` or `conversations.replies`."""
    event = {**message, "channel": conversation.channel, "channel_type": conversation.kind}
    envelope = {"team_id": app.team, "is_ext_shared_channel": conversation.is_shared, "event": event}
    return message_from_event(name, app, envelope, slack_connect=slack_connect)


def message_from_command(
    name: str, app: Installation, payload: Payload, *, conversation: str, commands: Collection[str], sent_at: datetime
) -> InboundMessage:
    """`/ethos …`: a command where the first word is one, otherwise a text for the agent.

    Args:
        conversation: the person's direct chat with us, where it is answered, since answers to commands are private.
        commands: the names of the gateway's commands.
    """
    text = plain_text(str(payload.get("text") or ""), app.user).strip().removeprefix("/")
    text = text or "help"
    # The only key that there is: one trigger id is one invocation, and Slack never repeats it.
    key = f"command-{payload['trigger_id']}"
    return InboundMessage(
        id=key,
        event_id=key,
        conversation=ConversationRef(channel=name, conversation=conversation),
        sender=_sender(name, app.organisation, str(payload["user_id"]), {"display_name": payload.get("user_name")}),
        text=text,
        sent_at=sent_at,
        command=text if text.split()[0].lower() in commands else None,
    )


def message_from_action(name: str, app: Installation, payload: Payload, *, sent_at: datetime) -> InboundMessage | None:
    """A press on one of our buttons, whose value is a command; None for other buttons, and for outsiders."""
    action = payload["actions"][0]
    if not str(action.get("action_id", "")).startswith(BUTTON) or not action.get("value"):
        return None
    user = payload["user"]
    if not app.owns(user.get("team_id")) or not app.owns((payload.get("team") or {}).get("id")):
        return None
    container = payload["container"]
    channel = str(container["channel_id"])
    is_direct = channel.startswith("D")
    answered = _ts(container.get("message_ts"))
    thread = _ts(container.get("thread_ts")) or (None if is_direct else str(container["message_ts"]))
    key = f"action-{payload['trigger_id']}"
    return InboundMessage(
        id=key,
        event_id=key,
        conversation=ConversationRef(channel=name, conversation=channel, thread=thread),
        sender=_sender(name, app.organisation, str(user["id"]), {"display_name": user.get("name")}),
        text=str(action["value"]),
        sent_at=sent_at,
        is_direct=is_direct,
        mentions_bot=True,
        reply_to=answered,
        command=str(action["value"]),
    )


def without_answered_buttons(payload: Payload) -> dict[str, Any] | None:
    """The pressed button's message, with the buttons that remain; None where Slack does not send it."""
    message = payload.get("message") or {}
    pressed = str(payload["actions"][0].get("value") or "")
    blocks = []
    for block in message.get("blocks") or ():
        left = block
        if block.get("type") == "actions":
            values = remaining_actions([str(each.get("value") or "") for each in block["elements"]], pressed)
            pairs = zip(block["elements"], values, strict=True)
            left = {**block, "elements": [{**each, "value": value} for each, value in pairs if value is not None]}
        if left.get("type") != "actions" or left["elements"]:
            blocks.append(left)
    return {"blocks": blocks, "text": str(message.get("text") or "")} if blocks else None


def time_of(ts: str) -> datetime:
    """The time in a message's `ts`, seconds since 1970 with six digits behind the point."""
    return datetime.fromtimestamp(float(ts), UTC)


def _ts(value: object) -> str | None:
    """A timestamp that may be missing."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no timestamp")
    return value or None


def plain_text(text: str, bot_user: str) -> str:
    """Slack's text as a person sees it, without the mention of the bot.

    Only `&`, `<` and `>` are escaped in it, so every `<…>` is a token of Slack's:
    https://docs.slack.dev/messaging/formatting-message-text#retrieving-messages
    """
    text = re.sub(rf"^\s*<@{bot_user}(?:\|[^>]*)?>[:,]?\s*|\s*<@{bot_user}(?:\|[^>]*)?>", "", text)
    text = _TOKEN.sub(lambda found: _shown(found[1]), text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _shown(token: str) -> str:
    target, _, label = token.partition("|")
    sign, rest = target[0], target[1:]
    if sign == "@":
        return f"@{label or rest}"
    if sign == "#":
        return f"#{label or rest}"
    if sign == "!":
        special = rest.partition("^")[0]
        return label or f"@{special}"
    address = target.removeprefix("mailto:")
    if not label or label == address or address.partition("://")[2].rstrip("/") == label.rstrip("/"):
        return address
    return f"{label} ({address})"


def _is_by_a_person(app: Installation, event: Payload) -> bool:
    """Not by us, a bot, an app, a webhook or Slack itself. `username` proves nothing, so it does not count."""
    if event.get("subtype") not in _WRITTEN_BY_PEOPLE or event.get("hidden"):
        return False
    if event.get("bot_id") or event.get("bot_profile") or event.get("app_id"):
        return False
    return event.get("user") not in (None, "", app.user, _SLACKBOT)


def _team_of_author(app: Installation, event: Payload, conversation: Conversation) -> str:
    """The author's workspace or organisation.

    Other workspaces of our own organisation are told apart from other organisations by the channel: only one that is
    shared with others has outsiders in it. https://docs.slack.dev/apis/slack-connect
    """
    if not conversation.is_shared:
        return app.team
    return str(event.get("user_team") or event.get("source_team") or event.get("team") or app.team)


def _sender(name: str, organisation: str, user: str, profile: Payload | None) -> Sender:
    profile = profile or {}
    shown = profile.get("display_name") or profile.get("real_name") or profile.get("name") or user
    return Sender(channel=name, user=f"{organisation}/{user}", display_name=str(shown), is_verified=True)


def _attachment(file: Payload, user: str) -> Attachment:
    """A file that this user sends; a clip that another person has recorded is a file like any other."""
    return Attachment(
        media_type=str(file.get("mimetype") or "application/octet-stream"),
        filename=str(file.get("name") or file.get("title") or file["id"]),
        size_bytes=int(file.get("size") or 0),
        ref=str(file["id"]),
        is_voice=file.get("subtype") == _CLIP and file.get("user") == user,
    )
