"""The three forms, every mistake's place, and what is written."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidAccount
from gateway.files.positions.json import Mistake, load
from gateway.people.identity.file import Account, NewerMap, check_key, clean_label, empty_map, parse

OURS = """{
 "version": 1,
 "identities": {
   "telegram:123456789": {"userId": "u_7f3a9c21d4e8", "label": "Ada (@ada)",
                          "firstSeenAt": "2026-11-20T10:00:00Z", "via": "first-contact"},
   "slack:T012/U345":    {"userId": "u_7f3a9c21d4e8", "label": "Ada", "firstSeenAt": "…", "via": "link-code"}}}
"""
ETHOS_ARRAY = """[
  {
    "platform": "telegram",
    "platformUserId": "123456789",
    "userId": "a1b2c3d4e5f6",
    "displayLabel": "alice",
    "firstSeenAt": "2026-09-01T09:14:02.118Z"
  },
  {
    "platform": "email",
    "platformUserId": "alice@example.com",
    "userId": "a1b2c3d4e5f6",
    "displayLabel": "alice",
    "firstSeenAt": "2026-09-03T16:40:55.902Z",
    "note": ["kept", 1]
  }
]"""
PLAIN = """{
  "telegram:123456789": "a1b2c3d4e5f6",
  "discord:987654321012345678": "g7h8i9j0k1l2"
}"""


def test_our_own_form_is_read() -> None:
    document = parse(OURS.encode())
    assert document.is_own_form
    assert document.users == {"telegram:123456789": "u_7f3a9c21d4e8", "slack:T012/U345": "u_7f3a9c21d4e8"}
    first, second = document.accounts()
    assert first == Account(
        key="telegram:123456789",
        user_id="u_7f3a9c21d4e8",
        label="Ada (@ada)",
        first_seen_at=datetime(2026, 11, 20, 10, tzinfo=UTC),
        via="first-contact",
    )
    assert (second.first_seen_at, second.via) == (None, "link-code")


def test_the_array_of_ethos_is_read() -> None:
    document = parse(ETHOS_ARRAY.encode())
    assert not document.is_own_form
    assert document.users == {"telegram:123456789": "a1b2c3d4e5f6", "email:alice@example.com": "a1b2c3d4e5f6"}
    first, second = document.accounts()
    assert (first.label, first.via) == ("alice", "imported")
    assert second.first_seen_at == datetime(2026, 9, 3, 16, 40, 55, 902000, tzinfo=UTC)


def test_a_plain_object_is_read() -> None:
    document = parse(PLAIN.encode())
    assert document.users == {"telegram:123456789": "a1b2c3d4e5f6", "discord:987654321012345678": "g7h8i9j0k1l2"}
    assert [account.label for account in document.accounts()] == list(document.users)


@pytest.mark.parametrize("form", [OURS, ETHOS_ARRAY, PLAIN, "{}", "[]", '{"identities": {}}', '\ufeff{"a:1":\r\n"u"}'])
def test_every_form_is_written_in_ours_and_loses_nobody(form: str) -> None:
    before = parse(form.encode())
    stranger = Account(
        key="desk:operator", user_id="u_1", label="é", first_seen_at=datetime(2026, 1, 2, tzinfo=UTC), via="x"
    )
    after = parse(before.with_accounts([stranger]).source)
    assert after.is_own_form
    assert after.users == {**before.users, "desk:operator": "u_1"}
    assert list(after.accounts()) == [*before.accounts(), stranger]
    assert json.loads(after.source)["version"] == 1


def test_fields_that_we_do_not_know_come_along_from_the_array() -> None:
    written = json.loads(parse(ETHOS_ARRAY.encode()).with_accounts([]).source)
    assert written["identities"]["email:alice@example.com"]["note"] == ["kept", 1]


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("", 1, 1, "empty"),
        (" \n ", 1, 1, "empty"),
        ('{\n  "a:1": "u"', 2, 13, "ends too early"),
        ('{"a:1": "u"\n "b:1": "u"}', 2, 2, "',' delimiter"),
        ('{"a:1": \n"u\n"}', 2, 3, "control character"),
        ("{'a:1': 'u'}", 1, 2, "double quotes"),
        ('{\n"a:1": "u"} x', 2, 13, "extra data"),
        ('{"a:1": "u",\n\n "a:1": "v"}', 3, 2, "'a:1' stands here a second time"),
        ('{"version": 1, "identities": {"a:1": {"userId": "u", \n"userId": "v"}}}', 2, 1, "second time"),
        ('{"a:1": "u", "\\u0061:1": "v"}', 1, 14, "second time"),
        ('{"a:1": NaN}', 1, 1, "NaN"),
        ('{"a:1": {"userId": "u", "n": 1e999}}', 1, 1, "too large"),
        ('{"a:1": {"userId": "u", "n": ' + "9" * 5000 + "}}", 1, 1, "5000 digits"),
        ("[" * 100_000, 1, 1, "nested"),
        ('{"a:1": "u",\n "b:1": "\\ud83d\\ude00\\ud83d"}', 2, 22, "surrogate"),
        ("5", 1, 1, "expected an object"),
        ('"a"', 1, 1, "expected an object"),
        ("null", 1, 1, "expected an object"),
        ('{"version": 1}', 1, 1, '"identities"'),
        ('{"identities": {},\n "version": "1"}', 2, 2, "version 1"),
        ('{"identities": {},\n "version": true}', 2, 2, "version 1"),
        ('{"identities": {},\n "version": 0}', 2, 2, "version 1"),
        ('{"version": 1,\n "identities": []}', 2, 2, "expected an object"),
        ('{"version": 1, "identities": {\n"a:1": 5}}', 2, 1, "expected an object"),
        ('{"version": 1, "identities": {\n"a:1": null}}', 2, 1, "expected an object"),
        ('{"version": 1, "identities": {\n"a:1": {}}}', 2, 1, '"userId"'),
        ('{"version": 1, "identities": {"a:1": {\n"userId": 5}}}', 2, 1, '"userId"'),
        ('{"version": 1, "identities": {"a:1": {\n"userId": ""}}}', 2, 1, '"userId"'),
        ('{"version": 1, "identities": {"a:1": {\n"userId": "../x"}}}', 2, 1, '"userId"'),
        ('{"version": 1, "identities": {"a:1": {\n"userId": "u\\n"}}}', 2, 1, '"userId"'),
        ('{"version": 1, "identities": {"a:1": {\n"userId": "ü"}}}', 2, 1, '"userId"'),
        ('{"version": 1, "identities": {"a:1": {"userId": "' + "u" * 65 + '"}}}', 1, 39, '"userId"'),
        ('{"version": 1, "identities": {"a:1": {"userId": "u",\n"label": 1}}}', 2, 1, '"label"'),
        ('{"version": 1, "identities": {"a:1": {"userId": "u",\n"firstSeenAt": 1}}}', 2, 1, '"firstSeenAt"'),
        ('{"version": 1, "identities": {"a:1": {"userId": "u",\n"via": []}}}', 2, 1, '"via"'),
        ('{"version": 1, "identities": {"x": [{"y": {}}, []],\n"a:1": {"userId": "u"}}}', 1, 31, "this key"),
        ('{"a:1": "u",\n "b:\\u0000": "v"}', 2, 2, "this key"),
        ('{"a:1": "u",\n "b": "v"}', 2, 2, "this key"),
        ('{"a:1": "u v"}', 1, 2, "user id"),
        ("[\n[]]", 2, 1, "expected an object"),
        ('[{"platform": "a", "platformUserId": "1", "userId": "u"},\n{"platform": "a"}]', 2, 1, '"platformUserId"'),
        ('[{"platform": "a",\n"platformUserId": 1, "userId": "u"}]', 2, 1, '"platformUserId"'),
        ('[{"platform": "a", "platformUserId": "1",\n"userId": 1}]', 2, 1, '"userId"'),
        ('[{"platform": "a:b", "platformUserId": "1", "userId": "u"}]', 1, 2, "colon"),
        ('[{"platform": "", "platformUserId": "1", "userId": "u"}]', 1, 2, "not valid"),
        ('[{"platform": "a", "platformUserId": "1", "userId": "u", "via": 5}]', 1, 58, '"via"'),
        (
            ('[{"platform": "a", "platformUserId": "1", "userId": "u"},\n'
             ' {"platform": "a", "platformUserId": "1", "userId": "v"}]'),
            2, 2, "second time",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(text: str, line: int, column: int, expected: str) -> None:
    with pytest.raises(Mistake) as caught:
        parse(text.encode())
    assert (caught.value.line, caught.value.column) == (line, column)
    assert expected.lower() in caught.value.expected.lower()


@pytest.mark.parametrize(
    ("data", "line", "column", "expected"),
    [
        (b'{"a:1":\n "\xff"}', 2, 3, "UTF-8"),
        ('{"ü:1": "u"}'.encode("utf-16"), 1, 1, "UTF-8"),
        (b"\0" * 100, 1, 1, "NUL"),
        (b'{"a:1": "u",\n\0\0\0', 2, 1, "NUL"),
    ],
)
def test_bytes_that_are_no_text_are_told_with_their_place(data: bytes, line: int, column: int, expected: str) -> None:
    with pytest.raises(Mistake, match=expected) as caught:
        parse(data)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_comma_too_many_is_named() -> None:
    with pytest.raises(Mistake, match="comma"):
        parse(b'{"a:1": "u",\n}')


def test_a_map_of_a_newer_program_is_refused() -> None:
    with pytest.raises(NewerMap, match="version 2 is of a newer program"):
        parse(b'{"version": 2, "identities": "whatever it may be"}')


def test_the_maps_in_the_documentation_are_read_without_a_complaint() -> None:
    text = (Path(__file__).parents[3] / "docs" / "identity.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    own_form, entry, array, plain = blocks
    assert set(parse(own_form.encode()).users.values()) == {"u_7f3a9c21d4e8"}
    for form in (array, plain, "{" + entry.strip().rstrip(",") + "}"):
        assert parse(form.encode()).users


# ---- properties -----------------------------------------------------------------------------------------------------

USER_IDS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEYS = st.builds(
    "{}:{}".format,
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters=":\0"), min_size=1, max_size=8),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
EXTRAS = st.dictionaries(
    TEXTS.map("x-{}".format),
    st.recursive(st.none() | st.booleans() | st.integers() | FLOATS | TEXTS, st.lists),
    max_size=3,
)  # fmt: skip
ENTRIES = st.builds(
    lambda user_id, label, extra: {"userId": user_id, **({} if label is None else {"label": label}), **extra},
    USER_IDS, st.none() | TEXTS, EXTRAS,
)  # fmt: skip


@pytest.mark.slow
@given(st.dictionaries(KEYS, ENTRIES, max_size=6), EXTRAS, KEYS, USER_IDS)
def test_whatever_was_in_the_map_is_there_unchanged_after_a_write(entries, extra, key, user_id) -> None:
    before = {**extra, "version": 1, "identities": entries}
    stranger = Account(key=key, user_id=user_id, label="n", first_seen_at=None, via="v")
    expected = {**entries, key: {"userId": user_id, "label": "n", "via": "v"}}
    after = json.loads(parse(json.dumps(before).encode()).with_accounts([stranger]).source)
    assert after == {**before, "identities": expected}
    assert list(after) == list(before)
    assert list(after["identities"]) == list(expected)


@given(st.text())
def test_a_label_is_always_one_line_that_can_be_shown(text: str) -> None:
    label = clean_label(text)
    assert len(label) <= 200
    assert not {"\0", "\n", "\r", "\x1b", "\x9b", "\u202e", "\u2028", "\ud800"} & set(label)
    assert clean_label(label) == label


@given(st.text(max_size=600))
def test_a_key_that_is_accepted_can_be_written_and_read_back(key: str) -> None:
    try:
        check_key(key)
    except InvalidAccount:
        return
    stranger = Account(key=key, user_id="u", label="", first_seen_at=None, via="v")
    assert parse(empty_map().with_accounts([stranger]).source).users == {key: "u"}


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\ \n0aeu1', max_size=40).map(str.encode))
def test_anything_at_all_is_read_or_refused_with_a_place(data: bytes) -> None:
    try:
        parse(data)
    except Mistake as mistake:
        assert mistake.line >= 1  # noqa: PT017 (both outcomes are fine)
        assert mistake.column >= 1  # noqa: PT017


@given(
    st.recursive(
        st.none() | st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=12
    )
)
def test_every_name_and_item_is_found_where_it_stands(value) -> None:
    marked = load(json.dumps(value, indent=1, ensure_ascii=False).encode())
    lines = marked.text.split("\n")

    def walk(path, inner) -> None:
        for key in inner if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ():
            mistake = marked.mistake((*path, key), "")
            found = lines[mistake.line - 1][mistake.column - 1 :]
            expected = key if isinstance(inner, dict) else inner[key]
            assert found.startswith(json.dumps(expected, indent=1, ensure_ascii=False).split("\n")[0])
            walk((*path, key), inner[key])

    walk((), value)
