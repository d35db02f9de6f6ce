"""Arguments are held against a JSON Schema of others: field by field, without a fetch, and in bounded time."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from gateway.tools.checking import faults_of
from gateway.tools.contract import Tool, ToolContext
from gateway.tools.schema import ArgumentsWrong, checked, fault_of_schema
from gateway.tools.spec import ToolCall
from gateway.tools.toolbox import Prepared, Toolbox

MAIL = {
    "type": "object",
    "properties": {
        "to": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "count": {"type": "integer", "minimum": 1},
        "kind": {"$ref": "#/$defs/kind"},
    },
    "required": ["to"],
    "additionalProperties": False,
    "$defs": {"kind": {"enum": ["a", "b"]}},
}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ('{"to": [{"name": "ada"}], "count": 2, "kind": "a"}', None),
        ("", "This is not JSON"),
        ("[]", "the whole: it is not a JSON object."),
        ('{"to": [{"name": "\\ud800"}]}', "This is not JSON"),
        ('{"count": NaN}', "NaN is not a value of JSON"),
        ("{}", "the whole: 'to' is a required property."),
        ('{"to": [{"name": 5}]}', "to.0.name: 5 is not of type 'string'."),
        ('{"to": [], "count": 0}', "count: 0 is less than the minimum of 1."),
        ('{"to": [], "kind": "c"}', "kind: 'c' is not one of ['a', 'b']."),
        ('{"to": [], "cc": 1}', "the whole: Additional properties are not allowed ('cc' was unexpected)."),
        ('{"to": 1, "count": "x"}', "to: 1 is not of type 'array'. count: 'x' is not of type 'integer'."),
    ],
)
def test_each_wrong_field_is_named(given: str, problem: str | None) -> None:
    if problem is None:
        assert checked(MAIL, given) == json.loads(given)
    else:
        with pytest.raises(ArgumentsWrong) as caught:
            checked(MAIL, given)
        assert problem in str(caught.value)


def test_regular_expressions_of_others_are_not_tried() -> None:
    slow = "^(a+)+$"
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": slow}},
        "patternProperties": {slow: {"type": "string"}},
        "additionalProperties": False,
    }
    began = time.monotonic()
    checked(schema, json.dumps({"a": "a" * 40 + "!", "a" * 40 + "!": "x"}))
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (MAIL, None),
        ({"type": "object", "properties": {"a": {"$ref": "https://192.0.2.1/x"}}}, "refers to 'https://192.0.2.1/x'"),
        ({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}, "refers to 'file:///etc/passwd'"),
        ({"type": "object", "properties": {"a": {"type": "colour"}}}, "its schema is not valid: 'colour' is not valid"),
        ({"type": "object", "description": "x" * 70_000}, "its schema has more than 64 KB"),
    ],
)
def test_a_schema_that_cannot_be_used_is_found_before(schema: dict[str, Any], fault: str | None) -> None:
    found = fault_of_schema(schema)
    assert (found is None) == (fault is None)
    assert (fault or "") in (found or "")


@pytest.mark.parametrize("reference", ["https://192.0.2.1/x", "#/nowhere", "#"])
def test_a_reference_that_leads_nowhere_is_refused_and_nothing_is_fetched(reference: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": reference}}, "allOf": [{"$ref": reference}]}
    with pytest.raises(ArgumentsWrong, match="the schema of this tool cannot be followed"):
        checked(schema, '{"a": {}}')


def test_without_the_library_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "referencing.exceptions", None)
    with pytest.raises(ArgumentsWrong, match=r"they cannot be checked here; run `.* for jsonschema"):
        checked(MAIL, "{}")


async def test_a_tool_with_a_schema_is_prepared_like_any_other() -> None:
    async def send(arguments: object, _context: ToolContext) -> str:
        return json.dumps(arguments)

    tool = Tool(name="send", description="Sends.", arguments=MAIL, call=send, effect="act", destination=("to", "bcc"))
    box = Toolbox([tool])
    assert tool.spec.parameters == MAIL
    good = box.prepare(ToolCall(id="1", name="send", arguments='{"to": []}'))
    assert isinstance(good, Prepared)
    assert good.values == {"to": []}
    bad = box.prepare(ToolCall(id="1", name="send", arguments="{}"))
    assert not isinstance(bad, Prepared)
    assert bad.text == (
        "Error: the arguments are not valid. the whole: 'to' is a required property. "
        "Call send again with a JSON object."
    )
    assert list(faults_of([tool])) == [
        "send: its destination bcc is none of its arguments; there are to, count, kind",
    ]
