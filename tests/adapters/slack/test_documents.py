"""Long code and tables go as files: whole, once, and in the text where Slack takes no files."""

from __future__ import annotations

import asyncio
import csv
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.slack.render import LONG_UNITS, extract_documents, split
from gateway.errors import TransientSendError, UncertainSendError
from gateway.messages import OutboundMessage
from gateway.testing.adapters import answer, running, soon
from tests.adapters.slack.fake_slack import Fault, read
from tests.adapters.slack.harness import SocketHarness

CODE = "".join(f"print({number})\n" for number in range(600))
CSV = "\ufeffn,what\n" + "".join(f"{number},{'x' * 40}\n" for number in range(200))
ROWS = "".join(f"| {number} | {'x' * 40} |\n" for number in range(200))
TABLE = f"| n | what |\n|---|---|\n{ROWS}"
LONG = f"Here it is:\n\n```python\n{CODE}```\n\nAnd the numbers:\n\n{TABLE}\nThat is all."


# ---- what is taken out ----------------------------------------------------------------------------------------------


def test_a_long_block_is_named_where_it_stood() -> None:
    text, documents = extract_documents(LONG)
    assert text == (
        "Here it is:\n\n(see the file `code-1.py`)\n\nAnd the numbers:\n\n(see the file `table-2.csv`)\n\nThat is all."
    )
    assert [(each.filename, each.content) for each in documents] == [("code-1.py", CODE), ("table-2.csv", CSV)]


@pytest.mark.parametrize(
    ("fence", "name", "note"),
    [
        ("```rust", "code-1.rs", "(see the file `code-1.rs`)"),
        ("~~~", "code-1.txt", "(see the file `code-1.txt`)"),
        ("````brainfuck", "code-1.txt", "(see the file `code-1.txt`: brainfuck)"),
    ],
)
def test_the_file_is_called_after_its_language(fence: str, name: str, note: str) -> None:
    mark = re.match(r"[`~]+", fence)
    assert mark is not None
    text, (document,) = extract_documents(f"{fence}\n{CODE}{mark[0]}\n")
    assert (document.filename, document.content, text) == (name, CODE, f"{note}\n")


@pytest.mark.parametrize("text", ["", "short", f"```\n{CODE[:3000]}```", "word " * 5_000, f"> ```\n> {CODE}"])
def test_everything_else_stays_as_it_is(text: str) -> None:
    assert extract_documents(text) == (text, ())


def test_a_cell_that_a_spreadsheet_would_reckon_with_is_text() -> None:
    _, (document,) = extract_documents(TABLE.replace("| 7 |", "| =HYPERLINK(1) |").replace("| 8 |", "| -8,5 |"))
    assert document.content.split("\n")[8:10] == [f"'=HYPERLINK(1),{'x' * 40}", f'"-8,5",{"x" * 40}']


def test_a_block_that_is_still_being_written_is_a_file_already() -> None:
    text, (document,) = extract_documents(f"Here:\n```js\n{CODE}")
    assert (text, document.content) == ("Here:\n(see the file `code-1.js`)\n", CODE)


def test_no_more_than_ten_go_as_files() -> None:
    text, documents = extract_documents(f"```\n{CODE}```\n\n" * 12)
    assert len(documents) == 10
    assert text.count(CODE) == 2


WORDS = st.text(alphabet="ab &<>|`~#-\n\r\u00e9\U0001f600", max_size=60)
BLOCKS = st.tuples(st.sampled_from(["```", "~~~", "````", "```py", "   ```c"]), st.integers(1, 600)).map(
    lambda block: "\n".join([block[0], *["code of a block"] * block[1], block[0].strip().rstrip("pyc"), ""])
)
TABLES = st.integers(1, 300).map(lambda rows: "| a | b |\n|---|---|\n" + "| cell & | <x> |\n" * rows)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.one_of(WORDS, BLOCKS, TABLES), max_size=6).map("\n\n".join))
def test_nothing_of_a_text_is_lost(text: str) -> None:
    """The pieces and the files together are the text, but for fences, the file's names and what ends a line."""
    rest, documents = extract_documents(text)
    for number, document in enumerate(documents, 1):
        note = re.search(rf"\(see the file `(?:code|table)-{number}\.\w+`(?:: ([^\n]*))?\)\n", rest)
        assert note is not None
        is_table = document.filename.endswith(".csv")
        content = as_markdown(document.content) if is_table else f"```{note[1] or ''}\n{document.content}"
        rest = rest.replace(note[0], content, 1)
    assert bare(rest) == bare(text)
    assert bare("".join(split(extract_documents(text)[0]))) == bare(extract_documents(text)[0])


def as_markdown(table: str) -> str:
    head, *rows = (f"| {' | '.join(row)} |\n" for row in csv.reader(table.removeprefix("\ufeff").splitlines()))
    return "".join([head, "|---|---|\n", *rows])


def bare(text: str) -> list[str]:
    """The lines that are not blank; of a fence only what it says of the language, where no file's name says it."""
    lines = [re.sub(r"^ {0,3}(```+|~~~+)[ \t]*(py|c|python)?", "", line) for line in re.split(r"[\r\n]+", text)]
    return [line.strip() for line in lines if line.strip()]


@settings(deadline=None)
@given(st.integers(0, 12_000), st.integers(10, LONG_UNITS - 100))
def test_no_block_that_stays_is_cut(before_units: int, code_units: int) -> None:
    code = "x = 1\n\n" * (code_units // 7)
    text = "words " * (before_units // 6) + f"\n\n```py\n{code}```\n\n" + "words " * 1_000
    assert any(f"```py\n{code}```" in piece for piece in split(extract_documents(text)[0]))


# ---- how it is sent -------------------------------------------------------------------------------------------------


def texts(person: SocketHarness) -> list[str]:
    return [read(each) for each in person.slack.ours() if not each.get("files")]


def files(person: SocketHarness) -> list[tuple[str, str]]:
    found = [file["id"] for message in person.slack.ours() for file in message.get("files", ())]
    kept = [person.slack.files[each] for each in found]
    return [(each["shown"]["name"], each["content"].decode()) for each in kept]


async def settle(person: SocketHarness, message: OutboundMessage) -> None:
    """What the gateway does after an uncertain send."""
    if await soon(person.adapter.find_sent(message)) is None:
        await soon(person.adapter.send(message))


async def test_the_files_follow_the_text(person: SocketHarness) -> None:
    async with running(person):
        receipt = await soon(person.adapter.send(answer(person, LONG)))
    assert texts(person) == [extract_documents(LONG)[0]]
    assert files(person) == [("code-1.py", CODE), ("table-2.csv", CSV)]
    assert len(receipt.message_ids) == 1
    assert not [key for key in person.notes.texts if key.startswith("message/")]


@pytest.mark.parametrize("drop", ["before", "after"])
@pytest.mark.parametrize("has_died", [False, True])
async def test_a_file_is_shown_once_whatever_breaks(person: SocketHarness, drop: str, has_died: bool) -> None:
    message = answer(person, LONG)
    async with running(person):
        person.slack.fail("files.completeUploadExternal", Fault(), Fault(drop=drop))
        with pytest.raises(UncertainSendError):
            await soon(person.adapter.send(message))
        if not has_died:
            await settle(person, message)
    if has_died:
        later = SocketHarness(notes=person.notes, slack=person.slack)
        await later.start()
        async with running(later):
            await settle(later, message)
    assert texts(person) == [extract_documents(LONG)[0]]
    assert files(person) == [("code-1.py", CODE), ("table-2.csv", CSV)]


async def test_a_process_that_dies_while_a_file_is_shown_does_not_show_it_twice(person: SocketHarness) -> None:
    message, gate = answer(person, LONG), asyncio.Event()
    async with running(person):
        person.slack.fail("files.completeUploadExternal", Fault(), Fault(gate=gate))
        sending = asyncio.create_task(person.adapter.send(message))
        await person.slack.until(lambda: len(person.slack.called("files.completeUploadExternal")) == 2)
        sending.cancel()
        await asyncio.wait({sending})
        gate.set()
        await person.slack.until(lambda: len(files(person)) == 2)
    later = SocketHarness(notes=person.notes, slack=person.slack)
    await later.start()
    async with running(later):
        assert await soon(later.adapter.find_sent(message)) is not None
    assert files(person) == [("code-1.py", CODE), ("table-2.csv", CSV)]


async def test_too_many_uploads_hold_back_the_rest_of_the_answer(person: SocketHarness) -> None:
    message = answer(person, LONG)
    async with running(person):
        person.slack.fail("files.getUploadURLExternal", Fault(status=429, error="ratelimited", retry_after_s=5))
        with pytest.raises(TransientSendError) as caught:
            await soon(person.adapter.send(message))
        assert caught.value.retry_after_s == 5
        await soon(person.adapter.send(message))
    assert texts(person) == [extract_documents(LONG)[0]]
    assert len(files(person)) == 2


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "files.completeUploadExternal"])
async def test_where_slack_takes_no_files_the_whole_text_is_shown(person: SocketHarness, method: str) -> None:
    message = answer(person, LONG)
    async with running(person):
        person.slack.fail(method, Fault(error="file_uploads_disabled"))
        await soon(person.adapter.send(message))
        assert files(person) == []
    assert bare("".join(texts(person))) == bare(LONG)


async def test_without_the_permission_to_upload_nothing_is_lost_after_a_restart(person: SocketHarness) -> None:
    message = answer(person, LONG)
    person.slack.scopes.discard("files:write")
    async with running(person):
        person.slack.fail("chat.postMessage", Fault(), Fault(status=429, error="ratelimited", retry_after_s=1))
        with pytest.raises(TransientSendError):
            await soon(person.adapter.send(message))
    later = SocketHarness(notes=person.notes, slack=person.slack)
    await later.start()
    async with running(later):
        await soon(later.adapter.send(message))
    assert "".join(texts(person)).count("print(") == 600
    assert "see the file" not in "".join(texts(person))
