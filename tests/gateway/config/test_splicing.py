"""A change to a YAML file is put at its place: no other line moves, and the file then says exactly what is wanted."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.example import ExampleLayout, read_example, switched_on
from gateway.files.positions.splicing import REMOVED, CannotSplice, spliced
from gateway.files.positions.yaml import KeyPath, MarkedYaml, parse_marked_yaml, value_at

PATH = ("mcp", "servers", "new")
WRITTEN = """# The gateway of Ada.
mcp:
  serve: true
  servers:
    # my notes
    notes:
      command: [npx, -y, "a@1",  # pinned
        b]
      # only these
      tools: ['read_*']

    # the house
    home: {url: 'http://127.0.0.1:9/'}  # local
    # old: {url: …}

# Limits of all.
limits:
  steps_per_turn: 3
models:
  main: {provider: offline}
"""
ENTRY: Mapping[str, Any] = {"url": "http://127.0.0.1:8/", "headers": {"X-Mode": "1e5", "Authorization": "Bearer ${X}"}}
LINES = """    new:
      url: http://127.0.0.1:8/
      headers: {X-Mode: '1e5', Authorization: 'Bearer ${X}'}
"""


def test_an_entry_is_put_behind_the_last_one_and_no_other_character_changes() -> None:
    before, after = WRITTEN.split("\n# Limits")
    added = spliced(WRITTEN, {PATH: ENTRY})
    assert added == f"{before}{LINES}\n# Limits{after}"
    assert spliced(added, {PATH: REMOVED}) == WRITTEN


def test_an_entry_is_taken_out_alone_and_the_comments_around_it_stay() -> None:
    begin, end = WRITTEN.index("    notes:\n"), WRITTEN.index("\n    # the house")
    assert spliced(WRITTEN, {("mcp", "servers", "notes"): REMOVED}) == WRITTEN[:begin] + WRITTEN[end:]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "web: {port: 0}",
        "mcp:\n",
        "mcp:  # soon\n  servers: {}  # none\nweb: {port: 0}\n",
        "mcp: {serve: true, servers: {a: {url: 'http://127.0.0.1/',}, # one\n },}\n",
        "mcp: {servers: {}}\n",
        "---\nweb:\n  host: |\n    localhost\n\n...\n",
        "\ufeffmcp:\r\n  servers:\r\n    a: {url: x}\r\n# last\r\nweb: {}\r\n",
        "mcp:\n    servers:\n        a:\n            command:\n            - x\n            - y\n        # b\n",
    ],
)
def test_every_way_of_writing_a_section_takes_an_entry_and_gives_it_back(text: str) -> None:
    values = parse_marked_yaml(text.encode(), "config.yaml").values
    added = spliced(text, {PATH: ENTRY})
    found = parse_marked_yaml(added.encode(), "config.yaml").values
    assert found["mcp"]["servers"].pop("new") == ENTRY
    kept = {"mcp": {**values.get("mcp", {}), "servers": values.get("mcp", {}).get("servers", {})}}
    assert found == {**values, **kept}
    assert all(line[line.index("#") :] in added for line in text.splitlines() if "#" in line)
    left = spliced(added, {PATH: REMOVED})
    assert "new" not in left
    assert all(line in left for line in text.splitlines() if line.startswith("#"))


def test_the_example_takes_an_entry_and_nothing_else_in_it_changes() -> None:
    text = (Path(__file__).parents[3] / "config.example.yaml").read_text()
    added = spliced(text, {PATH: ENTRY})
    assert "    #notes:\n" in added
    assert added.replace(LINES, "") == text


@pytest.mark.parametrize("text", ["{}\n", "mcp: 3\n", "mcp: {servers: [1]}\n", "a: 1\n a: 2\n"])
def test_what_cannot_be_changed_safely_is_refused(text: str) -> None:
    with pytest.raises(CannotSplice):
        spliced(text, {PATH: ENTRY})


EXAMPLE = Path(__file__).parents[3] / "config.example.yaml"
LAYOUT = ExampleLayout()


def example(text: str, changes: Mapping[KeyPath, Any]) -> list[str]:
    """The lines that a change adds to a text, from which it takes none."""
    after = spliced(text, changes, LAYOUT).splitlines()
    before = text.splitlines()
    left = iter(after)
    assert all(line in left for line in before), "lines were changed"
    return [line for line in after if line not in before]


def test_a_key_that_the_example_switches_off_goes_below_its_line() -> None:
    text = EXAMPLE.read_text()
    after = spliced(text, {("secret",): "${S}", ("memory", "traces", "ingest", "model"): "local"}, LAYOUT)
    assert "\n#secret: ${ETHOS_SECRET}\nsecret: ${S}\n" in after
    assert after.count("      #model: local\n      model: local\n") == 1
    after = spliced(text, {("channels", "shop"): {"kind": "webhook", "secret": {"file": "x"}}}, LAYOUT)
    assert "  #  timeout_s: 20\n  shop:\n    kind: webhook\n    secret: {file: x}\n\n\n# ---- Web server" in after


def test_a_new_key_goes_where_the_example_has_it() -> None:
    text = "# mine\n\nmodel: main\n\nweb:\n    # only here\n    port: 1\nlog: {level: info}\n"
    changes = {("web", "host"): "::1", ("web", "ports"): [8443], ("budgets", "user", "usd"): 2, ("time_zone",): "UTC"}
    assert spliced(text, changes, LAYOUT) == (
        "# mine\n\nmodel: main\ntime_zone: UTC\n\nweb:\n    host: ::1\n    # only here\n    port: 1\n"
        "    ports: [8443]\n\nbudgets:\n    user: {usd: 2}\n\nlog: {level: info}\n"
    )


def test_a_value_keeps_its_quotes_and_the_comment_behind_it() -> None:
    lists = "c: 1   # three\nd:   # four\n  - p  # p\n  # about q\n  - q\n"
    text = f"a: 'x'  # one\nb: \"y\"\n{lists}e: >-\n  long\n  text\n\nf: 2\n"
    after = spliced(text, {("a",): "z", ("b",): "w", ("c",): True, ("d",): ["p", "r", "q"], ("e",): "short"})
    lists = "c: true   # three\nd:   # four\n  - p  # p\n  - r\n  # about q\n  - q\n"
    assert after == f"a: 'z'  # one\nb: \"w\"\n{lists}e: short\n\nf: 2\n"


def test_a_section_that_keeps_a_comment_stays_when_its_last_key_goes() -> None:
    text = "hooks:\n\n  # none yet\n  #ci:\n  #  text: x\n\n  ci:\n    text: y\nweb: {port: 1}\n"
    after = spliced(text, {("hooks", "ci"): REMOVED})
    assert after == "hooks:\n\n  # none yet\n  #ci:\n  #  text: x\n\nweb: {port: 1}\n"
    assert spliced("a:\n  b:\n    c: 1\nd: 2\n", {("a", "b", "c"): REMOVED}) == "d: 2\n"


def test_a_text_of_several_lines_is_written_as_such() -> None:
    added = spliced("hooks:\n  ci: {}\n", {("hooks", "ci", "text"): "first\n  second\n\nthird\n"})
    assert added == "hooks:\n  ci:\n    text: |\n      first\n        second\n\n      third\n"
    assert (
        spliced(added, {("hooks", "ci", "text"): "one\ntwo"}) == "hooks:\n  ci:\n    text: |-\n      one\n      two\n"
    )


def test_several_keys_of_one_list_entry_and_an_entry_of_a_list() -> None:
    text = "tools:\n  packages:\n  # mine\n  - package: a.b\n    room: hall\n  - c.d  # bare\n"
    after = spliced(text, {("tools", "packages", 0, "room"): "attic", ("tools", "packages", 1): REMOVED})
    assert after == "tools:\n  packages:\n  # mine\n  - package: a.b\n    room: attic\n"


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("a: &x 1\n", {("b",): 1}),
        ("a: !!str 1\n", {("b",): 1}),
        ("a: [1]\n", {("a", 3): 1}),
        ("a: 1\n---\nb: 2\n", {("b",): 1}),
        ("? a\n: 1\n", {("b",): 1}),
    ],
)
def test_what_a_configuration_may_not_hold_is_refused(text: str, changes: Mapping[KeyPath, Any]) -> None:
    with pytest.raises(CannotSplice):
        spliced(text, changes)


# ---- for all files and changes --------------------------------------------------------------------------------------

HALF_ON = "\n".join(
    line.replace("#", "", 1) if line.lstrip().startswith("#") and line.lstrip()[1:2] not in (" ", "") else line
    for line in EXAMPLE.read_text().splitlines()
)
FOUR = """# tabs	here
mcp:
    servers:

        a:
            command:
            - x
            -   y
        # b

web:
    allow:
        - 'a'   # first

        # second
        - "b"
    port: 0x10
"""
FLOW = """web: {port: 1, allow: [a, "b c" , 'd'],  # why
  host: x}
log: {}
models: { m: {provider: offline } }
"""
TEXTS = """hooks:
  ci:
    text: |+
      a


    to: >-
      b
      c
  # end of hooks
limits:
  lease_s:



log: ~
"""
FILES: Mapping[str, str] = {
    "example": EXAMPLE.read_text(),
    "all of it": switched_on(EXAMPLE.read_text()),
    "half of it": HALF_ON,
    "windows": WRITTEN.replace("\n", "\r\n"),
    "bom": f"\ufeff{WRITTEN}",
    "no end": WRITTEN.rstrip("\n"),
    "by hand": WRITTEN,
    "four": FOUR,
    "flow": FLOW,
    "texts": TEXTS,
    "empty": "",
    "comments": "# nothing yet\n#web: {port: 1}\n\n",
    "quoted": "\"web\":\n  'port': 1\n  host:  '::'\nmodel : 'm'\n",
}
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
    | st.sampled_from(
        ["", "no", "1e5", "0x10", "012", "a: b", "# c", "- d", "*e", "{f", "a\nb", "a\n\n b\n", "${X}", "~"]
    )
)
KEYS = st.sampled_from(
    ["web", "port", "allow", "host", "mcp", "servers", "a", "models", "m", "hooks", "ci", "text", "new"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(SCALARS, max_size=4) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def paths_in(values: Any, path: KeyPath = ()) -> list[KeyPath]:
    """All keys of all sections."""
    found: list[KeyPath] = []
    for key, item in values.items():
        found += [(*path, key), *(paths_in(item, (*path, key)) if isinstance(item, dict) else ())]
    return found


def concerned(document: MarkedYaml, text: str, path: KeyPath) -> set[int]:
    """The numbers of the lines that a change at the path concerns: from its key to the next one that is not below it.

    A section goes with its last key, and in one with braces all lines may change.
    """
    lines = text.removeprefix("\ufeff").splitlines()

    def of_key(key: KeyPath) -> set[int]:
        begin = document.keys[key].line
        later = [place.line for other, place in document.keys.items() if other[: len(key)] != key]
        return set(range(begin, min((line for line in later if line > begin), default=len(lines) + 1)))

    known = path
    while known and known not in document.keys:
        known = known[:-1]
    found = of_key(path) if known == path else {document.keys[known].line} if known else set()
    for depth in range(1, len(known) + (known != path)):
        place = document.places[known[:depth]]
        if lines[place.line - 1][place.column - 1 :].startswith("{"):
            found |= of_key(known[:depth])
        if len(value_at(document.values, known[:depth]) or ()) <= 1:
            found.add(document.keys[known[:depth]].line)
    return found


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_every_other_line_stays_and_the_file_says_what_is_wanted(name: str, data: st.DataObject) -> None:
    text = FILES[name]
    document = parse_marked_yaml(text.encode(), "config.yaml")
    assert not document.problems
    there = paths_in(document.values)
    path = data.draw(st.tuples(KEYS) | st.tuples(KEYS, KEYS) | (st.sampled_from(there) if there else st.tuples(KEYS)))
    value = data.draw(VALUES | st.just(REMOVED))
    above = [value_at(document.values, path[:depth]) for depth in range(1, len(path))]
    if not all(each is None or isinstance(each, dict) for each in above):
        with pytest.raises(CannotSplice, match="is no section"):
            spliced(text, {path: value}, LAYOUT)
        return
    after = spliced(text, {path: value}, LAYOUT)
    found = parse_marked_yaml(after.encode(), "config.yaml")
    assert not found.problems
    if value is REMOVED:
        assert value_at(found.values, path) is None
    else:
        assert json.dumps(value_at(found.values, path), sort_keys=True) == json.dumps(value, sort_keys=True)
    skipped = concerned(document, text, path)
    kept = [line for number, line in enumerate(text.splitlines(keepends=True), 1) if number not in skipped]
    lines = iter(after.splitlines(keepends=True))
    for line in kept:
        assert any(other in (line, f"{line}\n", f"{line}\r\n") for other in lines), line


def test_the_example_knows_every_key_of_its_own() -> None:
    example_now = read_example()
    assert example_now.keys["memory", "traces", "enabled"].group == "Memory"
    assert copy.copy(example_now.keys["web", "port"].value) == 8420
