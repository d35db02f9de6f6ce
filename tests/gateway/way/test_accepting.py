"""What no database takes is kept in another form, once and for ever: else its platform would deliver it for ever."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messages import Attachment, ConversationRef, InboundMessage, Sender
from gateway.pipeline.storable import MAX_ID_BYTES, storable_id
from tests.adapters.webhook.other_side import SECRET, signed
from tests.fake_channel import FakeChannel
from tests.gateway.way.conftest import House, settled
from tests.scripted_model import ScriptedModel

BAD = ["\ud800", "\udfff", "a\ud800b", "\0", "a\0", "\udc00\ud800"]
ANY_ID = st.text(st.sampled_from("a0d8f\0\ud800\udbff\udc00\ufffd\N{GRINNING FACE}"), min_size=1, max_size=6)


@given(ANY_ID, ANY_ID)
def test_an_id_has_one_form_that_can_be_stored_and_no_other_id_has_it(one: str, other: str) -> None:
    storable_id(one).encode()
    assert "\0" not in storable_id(one)
    assert storable_id(one)
    meant = [text.encode("utf-16-le", "surrogatepass") for text in (one, other)]
    assert (storable_id(one) == storable_id(other)) == (meant[0] == meant[1])


@pytest.mark.parametrize("value", ["123456789", "T012AB3CD/U045EF6GH", "ada@example.org", "1355517523.000005", "ü 🙂"])
def test_an_id_as_platforms_have_them_stays_as_it_is(value: str) -> None:
    assert storable_id(value) == value


def test_an_id_that_no_index_takes_is_its_beginning_and_a_hash() -> None:
    longest = "x" * MAX_ID_BYTES
    assert storable_id(longest) == longest
    one, other = (storable_id(f"{longest}{end}") for end in "ab")
    assert one.startswith("x" * 64 + "\ufffd#")
    assert len(one.encode()) < 200
    assert one != other
    assert storable_id(f"{longest}a") == one
    assert len(storable_id("\N{GRINNING FACE}" * 251).encode()) < 400, "it is counted in bytes"


def broken(channel: FakeChannel, bad: str) -> InboundMessage:
    """A message whose every id, name and file has the text in it."""
    file = Attachment(media_type=f"text/{bad}", filename=f"{bad}.txt", size_bytes=3, ref=f"r{bad}")
    return replace(
        channel.message("hello", attachments=(file,)),
        id=f"m{bad}",
        event_id=f"e{bad}",
        conversation=ConversationRef(channel=channel.name, conversation=f"c{bad}", thread=f"t{bad}"),
        sender=Sender(channel=channel.name, user=f"u{bad}", display_name=f"n{bad}", is_verified=True),
        reply_to=f"r{bad}",
    )


async def test_a_message_with_ids_that_cannot_be_stored_is_taken_answered_and_known_again(house: House) -> None:
    """Each is delivered three times, across a restart, and is one message of one person."""
    model = ScriptedModel(*["yes"] * len(BAD))
    for _ in range(3):
        async with house.gateway(model) as (gateway, channel):
            for bad in BAD:
                await channel.deliver(broken(channel, bad))
            await settled(gateway)
            rows = await gateway.store.engine.read(
                lambda connection: connection.execute("SELECT conversation, sender FROM inbox").fetchall()
            )
            people = await gateway.identities.users()
    assert len(model.requests) == len(BAD)
    assert len(rows) == len({row["conversation"] for row in rows}) == len({row["sender"] for row in rows}) == len(BAD)
    assert len(people) == len(BAD), "nobody is taken for somebody else whose id is broken in another way"


async def test_a_webhook_is_told_what_is_wrong_with_an_id_and_its_text_is_taken(house: House) -> None:
    """JSON can carry half of a surrogate pair; a sender that is told 400 does not repeat it."""
    channels = {"shop": {"kind": "webhook", "secret": SECRET, "reply_url": "http://127.0.0.1:9/", "access": "open"}}
    good = {"id": "m1", "conversation": "c1", "user": "u1", "text": "hello"}
    async with house.served(ScriptedModel("yes"), channels=channels) as gateway:
        assert gateway.web is not None
        async with httpx.AsyncClient(base_url=gateway.web.url, trust_env=False, timeout=60) as client:
            for number, field in enumerate(("id", "conversation", "user", "thread")):
                body = json.dumps({**good, field: "a\ud800"}).encode()
                refused = await client.post("hooks/shop", content=body, headers=signed(body, f"evt_{number}"))
                assert (refused.status_code, refused.json()["error"].partition(":")[0]) == (400, field)
            body = json.dumps({**good, "text": "he\ud800llo", "name": "A\ud800da"}).encode()
            taken = await client.post("hooks/shop", content=body, headers=signed(body, "evt_9"))
            assert taken.status_code == 202
        await gateway.dispatcher.idle()
        rows = await gateway.store.engine.read(
            lambda connection: connection.execute("SELECT payload FROM inbox").fetchall()
        )
        assert [json.loads(row["payload"])["text"] for row in rows] == ["he\ufffdllo"]
