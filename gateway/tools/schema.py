"""Holds arguments against the JSON Schema of a tool whose types are not ours, such as one of a server.

Nothing is ever fetched: a reference that leads out of the schema is an error. Regular expressions are not tried here,
since one of others could take for ever; whoever wrote them does that. jsonschema is loaded with the first schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

from gateway.runtime.extras import how_to_install
from gateway.tools.spec import size_bytes

MAX_SCHEMA_BYTES = 64 << 10
MAX_PROBLEMS = 8
_MAX_PROBLEM_CHARS = 300


class ArgumentsWrong(Exception):
    """They do not fit the schema; the text says what is wrong, field by field."""


def checked(schema: Mapping[str, Any], given: str) -> Mapping[str, Any]:
    """The arguments that a JSON text holds.

    Raises:
        ArgumentsWrong: it is no JSON object, or does not fit.
    """
    try:
        from referencing.exceptions import Unresolvable  # noqa: PLC0415 (it comes with jsonschema)
    except ImportError:
        raise ArgumentsWrong(f"they cannot be checked here; run {how_to_install('mcp')} for jsonschema.") from None
    try:
        values = json.loads(given, parse_constant=_no_constant)
        json.dumps(values, ensure_ascii=False).encode()  # half a character is none, and no store takes it
    except (ValueError, RecursionError) as error:
        raise ArgumentsWrong(f"This is not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise ArgumentsWrong("the whole: it is not a JSON object.")
    try:
        problems = list(islice(_problems(schema, values), MAX_PROBLEMS))
    except (Unresolvable, RecursionError) as error:
        raise ArgumentsWrong(f"the schema of this tool cannot be followed ({type(error).__name__}).") from None
    if problems:
        raise ArgumentsWrong(" ".join(problems))
    return values


def is_valid(schema: Mapping[str, Any], value: object) -> bool:
    """Whether a value fits, its format among it."""
    from jsonschema import FormatChecker  # type: ignore[import-untyped]  # noqa: PLC0415 (as above)

    return bool(_validator_class("")(schema, format_checker=FormatChecker()).is_valid(value))


def fault_of_schema(schema: Mapping[str, Any]) -> str | None:
    """Why no arguments can be held against it; None where they can."""
    from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]  # noqa: PLC0415 (as above)

    try:
        if size_bytes(json.dumps(schema)) > MAX_SCHEMA_BYTES:
            return f"its schema has more than {MAX_SCHEMA_BYTES >> 10} KB"
        if outside := next(_references_out(schema), None):
            return f"its schema refers to {outside[:80]!r}, which is not in it"
        _validator_class(str(schema.get("$schema", ""))).check_schema(schema)
    except SchemaError as error:
        return f"its schema is not valid: {error.message[:_MAX_PROBLEM_CHARS]}"
    except RecursionError:
        return "its schema is too deep"
    return None


def _problems(schema: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    from referencing import Registry  # noqa: PLC0415 (as above)

    validator = _validator_class(str(schema.get("$schema", "")))(schema, registry=Registry())
    for error in validator.iter_errors(values):
        place = ".".join(str(part) for part in error.absolute_path) or "the whole"
        yield f"{place}: {error.message[:_MAX_PROBLEM_CHARS]}."


@cache
def _validator_class(dialect: str) -> Any:
    """Of the dialect that a schema names, less what tries regular expressions."""
    from jsonschema import validators  # noqa: PLC0415 (as above)

    found = validators.validator_for({"$schema": dialect}, default=validators.Draft202012Validator)
    additional = found.VALIDATORS.get("additionalProperties", _unchecked)

    def without_patterns(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        return () if schema.get("patternProperties") else additional(validator, value, instance, schema)

    unchecked = dict.fromkeys(("pattern", "patternProperties", "unevaluatedProperties"), _unchecked)
    return validators.extend(found, {**unchecked, "additionalProperties": without_patterns})


def _unchecked(*_: object) -> tuple[()]:
    return ()


def _references_out(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str) and value[:1] != "#":
                yield value
            yield from _references_out(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references_out(value)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a value of JSON")
