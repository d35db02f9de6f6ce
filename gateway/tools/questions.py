"""The tool with which the agent asks the person something, with a button for each answer.

What is chosen comes back as a message of the person (`/choose`), so nothing waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from gateway.tools.contract import Arguments, Choosing, Tool, ToolContext, ToolError

Choice = Annotated[str, AfterValidator(lambda text: " ".join(text.split())), Field(min_length=1, max_length=60)]


class AskPerson(Arguments):
    """Arguments of `ask_person`."""

    question: Annotated[str, Field(min_length=1, max_length=1_000)]
    choices: Annotated[tuple[Choice, ...], Field(min_length=2, max_length=8)]

    @model_validator(mode="after")
    def _tells_them_apart(self) -> Self:
        if len(set(self.choices)) < len(self.choices) or not all(self.choices):
            raise ValueError("two of the choices are the same, or one is empty")
        return self


async def _ask(arguments: AskPerson, context: ToolContext) -> str:
    if context.choosing:
        raise ToolError("this answer asks a question already; ask the next one when it is answered")
    context.choosing.append(Choosing(question=arguments.question.strip(), choices=arguments.choices))
    return "The question stands below your answer, with a button for each choice. End your answer; do not repeat it."


def choices_of(arguments: str) -> Sequence[str]:
    """What a call of the tool offers, by its arguments in JSON; nothing where they are not good."""
    try:
        return AskPerson.model_validate_json(arguments).choices
    except ValidationError:
        return ()


ASK_PERSON = Tool(
    name="ask_person",
    description="Ask the person a question that has a few possible answers. They choose one by a button.",
    arguments=AskPerson,
    call=_ask,
    effect="own",
    is_idempotent=True,
)
