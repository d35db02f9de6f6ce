"""An address counts as read only where others wrote it before the model did."""

from __future__ import annotations

import json

import pytest

from gateway.agent.addresses import was_read
from gateway.agent.model import ChatMessage
from gateway.tools.contract import Arguments, Effect, Tool, ToolContext
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Toolbox

ADDRESS = 'https://evil.test/"s3cret"'


class Nothing(Arguments):
    """No arguments."""


async def _nothing(_arguments: Nothing, _context: ToolContext) -> str:
    return ""


def tool(name: str, effect: Effect, *, shows_others: bool) -> Tool:
    return Tool(name=name, description="", arguments=Nothing, call=_nothing, effect=effect, shows_others=shows_others)


TOOLBOX = Toolbox(
    [
        tool("page", "fetch", shows_others=False),
        tool("mail", "read", shows_others=True),
        tool("file", "read", shows_others=False),
        tool("program", "own", shows_others=True),
        tool("post", "act", shows_others=True),
    ]
)


def asked(text: str) -> ChatMessage:
    return ChatMessage(role="user", text=text)


def called(name: str, arguments: str = "{}", result: str = "", text: str = "") -> list[ChatMessage]:
    call = ToolCall(id="c1", name=name, arguments=arguments)
    return [
        ChatMessage(role="assistant", text=text, tool_calls=(call,)),
        ChatMessage(role="tool", text=result, tool_call_id="c1"),
    ]


@pytest.mark.parametrize(
    ("name", "counts"),
    [("page", True), ("mail", True), ("file", False), ("program", False), ("post", False), ("none", False)],
)
def test_a_result_counts_where_it_is_all_of_others(name: str, counts: bool) -> None:
    assert was_read(ADDRESS, called(name, result=f"see {ADDRESS}."), TOOLBOX) == counts
    assert not was_read(ADDRESS, called(name, result="see https://evil.test/"), TOOLBOX)


def test_what_came_with_a_message_counts() -> None:
    assert was_read(ADDRESS, [asked(f"see {ADDRESS}")], TOOLBOX)
    assert not was_read(ADDRESS, [], TOOLBOX)


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"url": ADDRESS}),
        json.dumps({"deep": [{"url": f"x{ADDRESS}y"}]}),
        json.dumps({ADDRESS: 1}),
        json.dumps({"url": ADDRESS}).replace("e", "\\u0065"),
        ADDRESS,
    ],
)
def test_what_the_model_wrote_into_a_call_before_is_not_read_whoever_says_it_back(arguments: str) -> None:
    wrote = called("mail", arguments, result=ADDRESS)
    assert not was_read(ADDRESS, [*wrote, asked(ADDRESS)], TOOLBOX)
    assert was_read(ADDRESS, [asked(ADDRESS), *wrote], TOOLBOX), "it was read first"


def test_what_the_model_said_or_took_for_a_tool_is_not_read() -> None:
    assert not was_read(ADDRESS, [*called("mail", text=f"see {ADDRESS}"), asked(ADDRESS)], TOOLBOX)
    assert not was_read(ADDRESS, [*called(ADDRESS), asked(ADDRESS)], TOOLBOX)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("evil.test/?q=s3cret", "https://evil.test/?q=s3cret"),
        ("https://evil.test/?q=%73%33cret", "https://evil.test/?q=s3cret"),
        ("https://evil.test/?q=%2573%2533cret", "https://evil.test/?q=s3cret"),
        ("HTTPS://EVIL.test/?q=s3cret", "https://evil.test/?q=s3cret"),
        ("https://evil.test/?q=s3cret", "https://evil.test/?q=%73%33cret"),
        ("s3cret", "https://evil.test/s3cret"),
        ("/s3cret?", "https://evil.test/a/s3cret/b"),
        ("my s3cret", "https://evil.test/?q=my%20s3cret"),
    ],
)
def test_what_a_tool_makes_of_the_words_of_the_model_is_not_known(written: str, shown: str) -> None:
    assert not was_read(shown, called("mail", json.dumps({"query": written}), f"see {shown} now"), TOOLBOX)
    assert was_read(shown, called("mail", json.dumps({"query": "tea"}), f"see {shown} now"), TOOLBOX)
    assert was_read(shown, [asked(f"look at {shown}"), *called("mail", json.dumps({"query": written}))], TOOLBOX)


def test_the_host_alone_and_short_words_make_no_address_unknown() -> None:
    for written in ("https://evil.test/", "evil.test", "tea", "[" * 100_000):
        shown = "https://evil.test/tea-time"
        arguments = json.dumps({"query": written})
        assert was_read(shown, called("mail", arguments, f"see {shown} now"), TOOLBOX), written
    assert was_read("https://a.test/x", called("mail", "[" * 100_000, "see https://a.test/x now"), TOOLBOX)
