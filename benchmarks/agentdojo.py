"""The tasks of AgentDojo (MIT), a public benchmark, for `benchmarks.asking --agentdojo`: as a package of tools, too.

Its solutions, its environments and its injected goals are used as they are. Which of its tools has effects is said
here, and what somebody else may have written: all that a tool reads but for the few of `CLEAN`. What has effects is
not done, and only noted.

https://github.com/ethz-spylab/agentdojo
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from benchmarks.asking import Step, Task
from gateway.tools.contract import Tool, ToolContext, ToolError, ToolServices
from tests.tool_packages.office import OFFICE

PLUGIN_API = 1
VERSION = "v1.2.2"
SUITES = ("workspace", "travel", "banking", "slack")
INSTALL = (
    "AgentDojo is not installed here. To have it without the libraries of models:\n"
    "  pip install --no-deps --target DIRECTORY agentdojo docstring-parser deepdiff orderly-set cachebox"
    " email-validator dnspython\n"
    "  PYTHONPATH=DIRECTORY python -m benchmarks.asking --agentdojo"
)
ACTS: Mapping[str, tuple[str, ...]] = {
    "send_email": ("recipients", "cc", "bcc"),
    "create_calendar_event": ("participants",),
    "add_calendar_event_participants": ("participants",),
    "reschedule_calendar_event": ("event_id",),
    "cancel_calendar_event": ("event_id",),
    "append_to_file": ("file_id",),
    "create_file": ("filename",),
    "share_file": ("file_id", "email"),
    "delete_file": ("file_id",),
    "delete_email": ("email_id",),
    "reserve_hotel": ("hotel",),
    "reserve_restaurant": ("restaurant",),
    "reserve_car_rental": ("company",),
    "send_money": ("recipient",),
    "schedule_transaction": ("recipient",),
    "update_scheduled_transaction": ("id", "recipient"),
    "update_password": (),
    "update_user_info": (),
    "send_direct_message": ("recipient",),
    "send_channel_message": ("channel",),
    "invite_user_to_slack": ("user", "user_email"),
    "add_user_to_channel": ("user", "channel"),
    "remove_user_from_slack": ("user",),
    "post_webpage": ("url",),
}
"""Those with effects, and which of their arguments say to whom, or where."""
DESTRUCTIVE = {
    "delete_file", "delete_email", "cancel_calendar_event", "send_money", "schedule_transaction",
    "update_scheduled_transaction", "remove_user_from_slack", "post_webpage",
}  # fmt: skip
"""They delete, pay or publish."""
CLEAN = {
    "get_current_day", "get_iban", "get_balance", "get_user_info", "get_user_information",
}  # fmt: skip
"""What they read is the person's own, and nobody else writes it."""


class Config(BaseModel):
    """Which of the suites."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    suite: str


@cache
def suite(name: str) -> Any:
    """One of its suites.

    Raises:
        SystemExit: it is not installed; says how to.
    """
    found = importlib.util.find_spec("agentdojo")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(INSTALL)
    pipeline = ModuleType("agentdojo.agent_pipeline")  # whose own beginning loads the libraries of five models
    pipeline.__path__ = [f"{found.submodule_search_locations[0]}/agent_pipeline"]
    truth = ModuleType("agentdojo.agent_pipeline.ground_truth_pipeline")
    truth.GroundTruthPipeline = object  # type: ignore[attr-defined]
    sys.modules.update({module.__name__: module for module in (pipeline, truth)})
    try:
        from agentdojo.task_suite.load_suites import get_suites  # noqa: PLC0415 (not a dependency)
    except ModuleNotFoundError as error:
        raise SystemExit(f"{error.name} is missing. {INSTALL}") from error
    return get_suites(VERSION)[name]


def tasks(name: str) -> Sequence[Task]:
    """The tasks of a suite, in its order."""
    return [*_tasks(name)]


def _tasks(name: str) -> Iterator[Task]:
    environment = suite(name).load_and_inject_default_environment({})
    for task in suite(name).user_tasks.values():
        steps = _steps(task, environment)
        reads = [step for step in steps if step[0] not in ACTS]
        acts = [step for step in steps if step[0] in ACTS]
        yield Task(said=task.PROMPT, reads=reads, acts=acts, whole=steps)


def demands(name: str) -> Sequence[Sequence[Step]]:
    """What is injected: the calls that reach each goal. Those that only want to be said have none."""
    environment = suite(name).load_and_inject_default_environment({})
    found = (_steps(task, environment) for task in suite(name).injection_tasks.values())
    return [steps for steps in found if steps]


def _steps(task: Any, environment: Any) -> list[Step]:
    return [(call.function, dict(call.args)) for call in task.ground_truth(environment)]


def tools(config: Config, _services: ToolServices) -> Sequence[Tool]:
    """Those of a suite."""
    from agentdojo.functions_runtime import FunctionsRuntime  # noqa: PLC0415 (not a dependency)

    environment = suite(config.suite).load_and_inject_default_environment({})
    runtime = FunctionsRuntime(suite(config.suite).tools)
    return [_tool(function, runtime, environment) for function in suite(config.suite).tools]


def _tool(function: Any, runtime: Any, environment: Any) -> Tool:
    name = function.name
    is_act, is_visit = name in ACTS, name == "get_webpage"

    async def call(given: Mapping[str, Any], _context: ToolContext) -> str:
        if is_act or is_visit:
            OFFICE.done.append((name, dict(given)))
        if is_act:
            return "It is done."
        result, error = runtime.run_function(environment, name, dict(given))
        if error:
            raise ToolError(error)
        return result if isinstance(result, str) else to_json(result).decode()

    return Tool(
        name=name,
        description=function.description,
        arguments=function.parameters.model_json_schema(),
        call=call,
        effect="act" if is_act else "fetch" if is_visit else "read",
        shows_others=not is_act and name not in CLEAN,
        destination=("url",) if is_visit else ACTS.get(name, ()),
        is_destructive=name in DESTRUCTIVE,
    )
