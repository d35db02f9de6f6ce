"""What the configuration means to the core: its values in the core's own types, for the start and for every reload."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from gateway.agent.budgets import Budgets, Limit
from gateway.config import Config, DayBudget
from gateway.config.values import zone_of
from gateway.config.watching import OTLP_ENDPOINT
from gateway.ops.telemetry import start_metrics, start_traces
from gateway.people.access import AccessRule
from gateway.pipeline.open_turn import TurnSettings
from gateway.pipeline.queues import DeliveryPolicy
from gateway.runtime.logs import hiding, secrets_in

if TYPE_CHECKING:
    from gateway.ops.telemetry.metrics import Metrics


def rules_of(config: Config) -> dict[str, AccessRule]:
    """Who may talk on which channel."""
    return {
        name: AccessRule(
            mode=channel.access,
            in_groups=channel.access_in_groups,
            allow=frozenset(channel.allow),
            role=channel.role,
        )
        for name, channel in config.channels.items()
    }


def budgets_of(config: Config) -> Budgets:
    """What may be spent in a day."""

    def limit(budget: DayBudget | None) -> Limit:
        return Limit() if budget is None else Limit(turns=budget.turns, tokens=budget.tokens, usd=budget.usd)

    budgets = config.budgets
    return Budgets(
        zone=zone_of(config.budget_zone),
        user=limit(budgets.user),
        personality=limit(budgets.personality),
        personalities={name: limit(budget) for name, budget in budgets.personalities.items()},
        gateway=limit(budgets.gateway),
    )


def policy_of(config: Config) -> DeliveryPolicy:
    """How often and how long a message is tried."""
    return DeliveryPolicy(**config.delivery.model_dump(), hide=hiding(secrets_in(config)))


def turn_settings_of(config: Config) -> TurnSettings:
    """What of the configuration concerns a turn."""
    by_channel = {name: channel.personality for name, channel in config.channels.items()}
    return TurnSettings(
        default_personality=config.personality,
        personality_of_channel=by_channel.get,
        session_scope=config.session_scope,
        steps_per_turn=config.limits.steps_per_turn,
        tool_calls_per_turn=config.limits.tool_calls_per_turn,
        schema_tokens=config.tools.schema_tokens,
        turn_timeout_s=config.limits.turn_timeout_s,
        max_message_chars=config.limits.max_message_chars,
        parked_expire_after_h=config.limits.parked_expire_after_h,
        approvals_expire_after_h=config.approvals.expire_after_h,
        are_named_spared=config.approvals.tainted == "destinations",
        hide=hiding(secrets_in(config)),
        allowed_addresses=config.web.allow,
    )


async def measure(stack: AsyncExitStack, config: Config) -> Metrics | None:
    """Listen to what happens, for whom it was switched on, until the stack is closed; the metrics, where they are."""
    telemetry = config.telemetry
    metrics = await start_metrics(stack) if telemetry.metrics else None
    if telemetry.traces:
        is_left_to_environment = telemetry.otlp_endpoint == OTLP_ENDPOINT
        await start_traces(stack, None if is_left_to_environment else telemetry.otlp_endpoint)
    return metrics
