"""Which messages belong together, and what they make: as pure functions, over whatever people may send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.telegram.inbound import Part, group_parts, join_parts, may_continue, part_of
from gateway.messages import Attachment, ConversationRef, InboundMessage, Sender

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def part(
    number: int,
    text: str = "",
    *,
    album: str | None = None,
    user: str = "42",
    thread: str | None = None,
    after_s: int = 0,
    **fields: Any,
) -> Part:
    files = (Attachment(media_type="image/jpeg", filename=f"{number}.jpg", size_bytes=1, ref=str(number)),)
    message = InboundMessage(
        id=f"-5:{number}", event_id=f"1:{number}",
        conversation=ConversationRef(channel="phone", conversation="-5", thread=thread),
        sender=Sender(channel="phone", user=user, display_name="Ada", is_verified=True),
        text=text, sent_at=NOON + timedelta(seconds=after_s), attachments=files if album else (), **fields,
    )  # fmt: skip
    sent = {"message_id": number} | ({"media_group_id": album, "caption": text} if album else {"text": text})
    return part_of({"update_id": number, "message": sent}, message)


def numbers(parts: list[Part]) -> list[list[int]]:
    return [[each.update["update_id"] for each in group] for group in group_parts(parts)]


def test_an_album_is_one_message_with_all_its_files_and_captions() -> None:
    parts = [part(1, album="a"), part(2, "look", album="a"), part(3, "here", album="a", mentions_bot=True)]
    (group,) = group_parts(parts)
    message = join_parts(group)
    assert (message.id, message.event_id) == ("-5:1", "1:1")
    assert (message.text, message.mentions_bot) == ("look\nhere", True)
    assert [file.ref for file in message.attachments] == ["1", "2", "3"]


def test_two_albums_are_two_messages() -> None:
    assert numbers([part(1, album="a"), part(2, album="a"), part(3, album="b")]) == [[1, 2], [3]]


def test_a_text_that_was_cut_inside_of_a_word_is_put_together_without_a_gap() -> None:
    parts = [part(1, "x" * 4096), part(2, "y" * 4095), part(3, "z")]
    assert numbers(parts) == [[1, 2, 3]]
    assert join_parts(parts).text == "x" * 4096 + "y" * 4095 + "\n" + "z"


def test_units_are_counted_as_the_apps_count_them() -> None:
    parts = [part(1, "🙂" * 2048), part(2, "🙂")]
    assert join_parts(group_parts(parts)[0]).text == "🙂" * 2049


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (part(2, "y", after_s=60), "it was written later"),
        (part(2, "y", user="43"), "somebody else wrote it"),
        (part(2, "y", thread="7"), "it is in another topic"),
        (part(2, "/stop"), "it is a command"),
        (part(2, "y", album="a"), "it is a picture"),
        (part(2, "y", is_trusted_text=False), "it was forwarded"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_belong_to_a_long_text_stays_by_itself(second: Part, why: str) -> None:
    assert numbers([part(1, "x" * 4000), second]) == [[1], [2]], why


def test_short_texts_are_never_joined_and_never_waited_for() -> None:
    assert numbers([part(1, "one"), part(2, "two")]) == [[1], [2]]
    assert not may_continue([part(1, "x" * 2048)])


def test_the_last_part_of_a_text_ends_the_wait_and_an_album_has_no_last_part() -> None:
    assert may_continue([part(1, "x" * 4000)])
    assert not may_continue([part(1, "x" * 4000), part(2, "end")])
    assert may_continue([part(1, album="a"), part(2, album="a")])
    assert not may_continue([part(1, album="a"), part(2, "now a question")])
    assert may_continue([part(1, album="a"), part(2, "somebody else", user="43")])


def test_what_others_write_in_between_comes_after_the_whole() -> None:
    parts = [part(1, "x" * 4000), part(2, "me too", user="43"), part(3, "end")]
    assert numbers(parts) == [[1, 3], [2]]


def test_a_command_keeps_all_of_its_arguments() -> None:
    parts = [part(1, "/forget_me " + "x" * 4085, command="forget-me " + "x" * 4085), part(2, "yz")]
    assert join_parts(group_parts(parts)[0]).command == "forget-me " + "x" * 4085 + "yz"


def test_one_forwarded_part_makes_the_whole_not_trusted() -> None:
    parts = [part(1, album="a"), part(2, "see", album="a", is_trusted_text=False)]
    assert not join_parts(group_parts(parts)[0]).is_trusted_text


KINDS = st.tuples(
    st.sampled_from(["hi", "x" * 2100, "y" * 4096, "/stop"]),
    st.sampled_from([None, None, "a", "b"]),
    st.sampled_from(["42", "43"]),
    st.sampled_from([None, "7"]),
    st.integers(0, 8),
)


@given(kinds=st.lists(KINDS, max_size=12))
def test_nothing_is_lost_nothing_doubled_and_the_first_parts_stay_in_order(
    kinds: list[tuple[str, str | None, str, str | None, int]],
) -> None:
    parts = [
        part(number, text, album=album, user=user, thread=thread, after_s=after_s)
        for number, (text, album, user, thread, after_s) in enumerate(kinds)
    ]
    groups = numbers(parts)
    assert sorted(number for group in groups for number in group) == list(range(len(parts)))
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
    assert all(group == sorted(group) for group in groups)
    for group in group_parts(parts):
        whole = join_parts(group)
        assert {each.message.sender.user for each in group} == {whole.sender.user}
        assert len(whole.attachments) == sum(len(each.message.attachments) for each in group)
        for each in group:
            assert each.message.text in whole.text


@given(kinds=st.lists(KINDS, max_size=10))
def test_a_message_keeps_its_id_whatever_comes_behind_it(
    kinds: list[tuple[str, str | None, str, str | None, int]],
) -> None:
    """So that parts which are handed over again after a crash are known by their first."""
    parts = [
        part(number, text, album=album, user=user, thread=thread, after_s=after_s)
        for number, (text, album, user, thread, after_s) in enumerate(kinds)
    ]
    for end in range(len(parts)):
        firsts = {group[0].update["update_id"] for group in group_parts(parts[:end])}
        assert firsts <= {group[0].update["update_id"] for group in group_parts(parts)}
