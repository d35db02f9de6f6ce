"""What a server asks in the middle of a call: how a person is asked, and what of theirs is the answer.

The next words of the person in that direct chat are the answer. They go to the server, and to no model. Then the call
is made again with them, by whatever connection there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from gateway.domain.command_text import ParsedCommand, parse_command
from gateway.domain.visible import visible
from gateway.messages import Action
from gateway.pipeline.commands import CANCEL, CHOOSE, chosen_by
from gateway.pipeline.queues import InboxRow
from gateway.tools.forms import AnswerWrong, Given, OpenQuestion, Value

FRESH = timedelta(hours=1)
"""What comes later is not taken for the answer; it is asked again then."""
MOST_BUTTONS = 8
_LABEL_CHARS = 60
_HOW = "Your next message is the answer. It goes to this server alone: no model sees it, and no session keeps it."
_LATE = "Your message went nowhere, because this question is still open. Answer it, or decline, and write it again."
_ONLY_TEXT = "Only words of your own can be the answer, without files. Nothing was passed on."


class QuestionStore(Protocol):
    """Where open questions are kept. They come and go with the commit of a turn."""

    async def question(self, lane: int) -> OpenQuestion | None:
        """The one that is open in a conversation, expired or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question with all of its answers, or declined."""

    question: OpenQuestion
    given: Given
    is_declined: bool

    @property
    def said(self) -> str:
        """What the session has in the place of the person's words."""
        did = "declined to answer" if self.is_declined else "answered"
        return f"(The person {did} the question of the server {self.question.wanted.server}. It alone knows the words.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOn:
    """There is more to ask, or the same again; `text` stands in front of the question."""

    question: OpenQuestion
    text: str = ""


def taken(question: OpenQuestion, row: InboxRow) -> Answered | AskedOn | None:
    """What a message is to an open question; None: it is another matter, such as a command.

    It depends on nothing but the two, so a turn that is tried again takes it for the same.
    """
    message = row.message
    command = parse_command(message)
    renewed = replace(question, turn_id=row.turn_id, asked_at=row.accepted_at)
    if command is not None:
        return _by_command(question, command, renewed)
    if row.accepted_at - question.asked_at > FRESH:
        return AskedOn(question=renewed, text=_LATE)
    if not message.is_trusted_text or message.attachments or not message.text.strip():
        return AskedOn(question=renewed, text=_ONLY_TEXT)
    try:
        return _with(renewed, question.point.read(message.text))
    except AnswerWrong as error:
        return AskedOn(question=renewed, text=f"That does not fit. Expected: {error}.")


def _by_command(question: OpenQuestion, command: ParsedCommand, renewed: OpenQuestion) -> Answered | AskedOn | None:
    if command.name == CANCEL and command.arguments in ("", question.turn_id):
        return Answered(question=question, given=question.wanted.given(None), is_declined=True)
    number, _, turn_id = command.arguments.partition(" ")
    if command.name != CHOOSE or turn_id != question.turn_id or not number.isdecimal() or len(number) > 2:
        return None
    offered = question.point.offered
    return _with(renewed, offered[int(number) - 1][1]) if 0 < int(number) <= len(offered) else None


def _with(question: OpenQuestion, value: Value) -> Answered | AskedOn:
    answers = (*question.answers, value)
    if len(answers) < len(question.wanted.points):
        return AskedOn(question=replace(question, answers=answers))
    return Answered(question=question, given=question.wanted.given(answers), is_declined=False)


def question_text(question: OpenQuestion) -> str:
    """The question in the server's words, which stand in a fence, and how to answer it."""
    point, points = question.point, question.wanted.points
    which = f" ({len(question.answers) + 1} of {len(points)})" if len(points) > 1 else ""
    words = visible(point.words if point.proposed is None else f"{point.words}\nProposed: {point.proposed[0]}")
    numbered = [
        f"{number}. {visible(label)}"
        for number, (label, _) in enumerate(point.offered if point.choices else (), start=1)
    ]
    fence = "```"
    while fence in "\n".join([words, *numbered]):
        fence += "`"
    within_s = question.wanted.within_s
    until = "" if within_s is None else f" It waits {within_s / 60:.0f} minutes."
    choices = "\n".join(["", *numbered]) if numbered else ""
    expected = "" if point.choices else f" Expected: {point.expected}."
    return (
        f"**The server {question.wanted.server} asks you{which}:**\n{fence}\n{words}{choices}\n{fence}\n"
        f"{_HOW}{until}{expected} `/{CANCEL}` declines."
    )


def question_buttons(question: OpenQuestion) -> Sequence[Action]:
    """A choice each, where they are few; and to decline."""
    labels = [visible(label)[:_LABEL_CHARS] for label, _ in question.point.offered]
    shown = labels if len(labels) <= MOST_BUTTONS else []
    choices = [chosen_by(number, question.turn_id, label) for number, label in enumerate(shown, start=1)]
    return [*choices, Action(id=f"{CANCEL} {question.turn_id}", label="Decline")]
