"""Pictures and PDFs on the way of a message: what a tool returns, and what comes with a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.errors import StoreUnavailable
from gateway.messages import Attachment
from gateway.store.turns import SqlTurns
from gateway.tools import own as tools
from gateway.tools.contract import Arguments, Picture, Tool, ToolContext, ToolResult
from gateway.tools.web.extract import MODEL_PIXELS
from tests.fake_channel import FakeChannel
from tests.gateway.tools.test_extract import pdf
from tests.gateway.tools.test_pictures import drawn, opened
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel, call

ON = {"files": True}
SMALL = drawn("PNG", 40, 30)


def read(name: str) -> Any:
    return call("read_file", f'{{"name": "{name}"}}', id="r1")


async def place(gateway: Gateway, name: str, data: bytes) -> None:
    user = await gateway.identities.resolve("fake:1", "Ada")
    files = gateway.home / "users" / user / "files"
    files.mkdir(parents=True, exist_ok=True)
    (files / name).write_bytes(data)


async def test_a_picture_of_the_workspace_is_shown_to_the_model_and_taints(house: House) -> None:
    model = ScriptedModel([read("cat.png")], "A cat.", "Yes.")
    async with house.gateway(model, tools=ON) as (gateway, channel):
        await place(gateway, "cat.png", SMALL)
        assert await channel.ask("what is it?", user="1") == "A cat."
        result = model.requests[1].messages[-1]
        assert result.text == (
            f"cat.png: image/png, {len(SMALL)} bytes\n"
            "[The picture cat.png stands behind the results, for a model that sees pictures.]"
        )
        assert [image.data for image in result.images] == [SMALL]
        await channel.ask("sure?", user="1")
        assert all(not message.images for message in model.requests[2].messages), "only its own turn shows it"
        await settled(gateway)
        [session] = await gateway.store.sessions.list_sessions()
        assert session.is_tainted, "nobody knows who drew it"


async def test_a_turn_that_was_cut_off_still_has_its_picture(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    save, cut_off = SqlTurns.save_steps, []

    async def cut_off_once(self: SqlTurns, turn_id: str, steps: str, *, is_durable: bool) -> bool:
        done = await save(self, turn_id, steps, is_durable=is_durable)
        if "stands behind" in steps and not cut_off:
            cut_off.append(turn_id)
            raise StoreUnavailable("the disk is full")
        return done

    monkeypatch.setattr(SqlTurns, "save_steps", cut_off_once)
    model = ScriptedModel([read("cat.png")], "A cat.")
    async with house.gateway(model, tools=ON) as (gateway, channel):
        await place(gateway, "cat.png", SMALL)
        assert await channel.ask("what is it?", user="1") == "A cat."
    assert len(cut_off) == 1
    assert [image.data for image in model.requests[1].messages[-1].images] == [SMALL]


async def test_one_result_shows_four_pictures_and_names_the_others_and_the_damaged(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nothing(Arguments):
        pass

    async def draw(_arguments: Nothing, _context: ToolContext) -> ToolResult:
        names = ("broken", *"abcde")
        return ToolResult(
            text="Drawn.", pictures=tuple(Picture(name=one, data=b"" if one == "broken" else SMALL) for one in names)
        )

    many = Tool(name="draw", description="Draws.", arguments=Nothing, call=draw, effect="read")
    monkeypatch.setattr(tools, "CURRENT_TIME", many)
    model = ScriptedModel(*([call("draw", "{}", id=f"c{number}")] for number in range(5)), "Drawn.")
    async with house.gateway(model) as (_, channel):
        assert await channel.ask("draw") == "Drawn."
    first, last = model.requests[1].messages[-1], model.requests[5].messages[-1]
    assert len(first.images) == 4
    assert "[The picture broken is not shown: the picture is damaged" in first.text
    assert first.text.endswith("[The picture e is not shown: 4 are the most.]")
    assert (last.images, last.text.splitlines()[-1]) == (
        (),
        "[No more pictures are shown: 16 are the most in one answer.]",
    )


async def test_a_pdf_of_the_workspace_is_read_by_pages(house: House) -> None:
    model = ScriptedModel([read("tea.pdf")], "Tea.")
    async with house.gateway(model, tools=ON) as (gateway, channel):
        await place(gateway, "tea.pdf", pdf("Green tea"))
        await channel.ask("what is in it?", user="1")
    assert model.requests[1].messages[-1].text == "[page 1 of 1]\nGreen tea"


async def test_a_persons_pdf_is_text_and_a_large_picture_is_shrunk(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "tea.pdf": pdf("Green tea"),
        "cat.jpg": drawn("JPEG", 2_000, 3_000),
        "bad.png": b"\x89PNG...",
        "x.pdf": b"no",
    }
    kinds = {".pdf": "application/pdf", ".jpg": "image/jpeg", ".png": "image/png"}

    async def fetch(_self: FakeChannel, attachment: Attachment, _max_bytes: int) -> bytes:
        return files[attachment.filename]

    monkeypatch.setattr(FakeChannel, "fetch", fetch, raising=False)
    model = ScriptedModel("I see.")
    async with house.gateway(model) as (_, channel):
        came = tuple(
            Attachment(media_type=kinds[Path(name).suffix], filename=name, size_bytes=len(data), ref=name)
            for name, data in files.items()
        )
        message = channel.message("look", attachments=came)
        await channel.deliver(message)
        assert await channel.answers_to(message) == ["I see."]
    asked = model.requests[0].messages[-1]
    assert r"[page 1 of 1]\nGreen tea" in asked.text
    assert "bytes; the picture is damaged" in asked.text
    assert "bytes; the PDF is damaged" in asked.text
    [shown] = asked.images
    assert max(opened(shown).size) == MODEL_PIXELS
