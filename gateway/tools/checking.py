"""What is wrong with a tool that a package gives, before anybody calls it; one line each, for its author."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gateway.tools.contract import LONGEST_CALL_S, MAX_DESCRIPTION_CHARS, Tool


def faults_of(tools: Sequence[Tool]) -> Iterator[str]:
    """All that a model or a person would be misled by."""
    for tool in tools:
        types = None if isinstance(tool.arguments, Mapping) else tool.arguments
        fields = tool.spec.parameters.get("properties", {}) if types is None else types.model_fields
        if not tool.description.strip():
            yield f"{tool.name}: it has no description; say what it does, and when to use it"
        if len(tool.description) > MAX_DESCRIPTION_CHARS:
            yield f"{tool.name}: the model sees only {MAX_DESCRIPTION_CHARS} characters of its description"
        if types is not None and types.model_config.get("extra") != "forbid":
            yield f"{tool.name}: it takes arguments that it does not know; make them of `Arguments`"
        yield from (
            f"{tool.name}: its destination {name} is none of its arguments; there are {', '.join(fields) or 'none'}"
            for name in tool.destination
            if name not in fields
        )
        if not 0 < tool.timeout_s <= LONGEST_CALL_S:
            yield f"{tool.name}: timeout_s is {tool.timeout_s:g}; expected more than 0 and at most {LONGEST_CALL_S:g}"
        if tool.effect == "act" and not tool.destination:
            text = "so only the owner can grant it, and only where no words of others were read"
            yield f"{tool.name}: it acts, and names no destination, {text}"
        if tool.effect != "act" and (tool.is_destructive or tool.approver != "owner"):
            yield f"{tool.name}: is_destructive and approver count only for the class act, and it is {tool.effect}"
