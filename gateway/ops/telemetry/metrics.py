"""Prometheus metrics: counters from the spans of `gateway.runtime.observe`, gauges from the health of the moment.

Every metric stands in `docs/health.md`; a test keeps the two equal. No label holds a person, a conversation or any
other value of which there is no bound: channels and models come from the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from gateway.agent.budgets import BudgetUse
from gateway.runtime.observe import Fact, Span
from gateway.sdk.models.system import ChannelHealth, Health, QueueHealth

_TURN_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_WAIT_BUCKETS_S = (0.01, 0.1, 0.5, 1, 5, 30, 60, 300, 1_800, 3_600, 86_400)
_SEND_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_DISK_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)
_PREFETCH_BUCKETS_S = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 2.5, 5)
_GROUP_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts what it hears of; a `Listener`."""

    def __init__(self) -> None:
        """Everything is at 0, in a registry of its own."""
        self.registry = registry = CollectorRegistry()
        self._gauges = _Gauges()
        registry.register(self._gauges)
        ProcessCollector(registry=registry)
        self._way = _Way(registry)
        self._inside = _Inside(registry)

    def page(self, health: Health, budgets: Sequence[BudgetUse] = ()) -> tuple[bytes, str]:
        """The text that Prometheus reads, and its media type."""
        self._gauges.health, self._gauges.budgets = health, budgets
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def began(self, span: Span) -> None:
        """Counted when it ends."""

    def ended(self, span: Span) -> None:
        """Count it."""
        count = self._way.counts.get(span.name) or self._inside.counts.get(span.name)
        if count is not None:
            count(span)

    def happened(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Count it; from any thread."""
        self._inside.happened(name, facts)


class _Way:
    """A message's way, from accept to receipt."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._accepted = counter("ethos_messages_accepted", "Messages committed to the inbox.", ["channel"])
        self._repeated = counter("ethos_messages_repeated", "Events that a platform delivered again.", ["channel"])
        self._refused = counter("ethos_messages_not_accepted", "Messages that could not be committed.", ["channel"])
        self._wait = histogram(
            "ethos_inbox_wait_seconds",
            "From the accept of a message to the start of its turn.",
            buckets=_WAIT_BUCKETS_S,
        )
        self._turns = histogram("ethos_turn_seconds", "Turns, by how they ended.", ["outcome"], buckets=_TURN_BUCKETS_S)
        self._sends = counter("ethos_sends", "Attempts to send an answer.", ["channel", "result"])
        self._send_seconds = histogram(
            "ethos_send_seconds", "What one attempt to send took.", ["channel"], buckets=_SEND_BUCKETS_S
        )
        self._given_up = counter("ethos_dead_letters_made", "Messages and answers that were given up.", ["queue"])
        self.counts = {
            "inbox.accept": self._accept,
            "inbox.wait": lambda span: self._wait.observe(span.duration_s),
            "turn": self._turn,
            "turn.dead_letter": self._dead_letter,
            "outbox.send": self._send,
        }

    def _accept(self, span: Span) -> None:
        if span.error is not None:
            counter = self._refused
        else:
            counter = self._accepted if span.facts.get("is_new") else self._repeated
        counter.labels(span.facts["channel"]).inc()

    def _turn(self, span: Span) -> None:
        outcome = span.facts.get("outcome", "released" if span.error == "CancelledError" else "failed")
        self._turns.labels(outcome).observe(span.duration_s)

    def _dead_letter(self, span: Span) -> None:
        if span.error is None:
            self._given_up.labels("inbox").inc()

    def _send(self, span: Span) -> None:
        result = span.facts.get("result", "released")
        self._sends.labels(span.facts["channel"], result).inc()
        self._send_seconds.labels(span.facts["channel"]).observe(span.duration_s)
        if result == "dead":
            self._given_up.labels("outbox").inc()


class _Inside:
    """Models, tools, memory, store, channels and the web server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._calls = histogram(
            "ethos_model_call_seconds",
            "Calls of a model, fallbacks included, by how they ended.",
            ["model", "purpose", "outcome"],
            buckets=_TURN_BUCKETS_S,
        )
        self._tokens = counter("ethos_model_tokens", "Tokens read and written.", ["model", "direction"])
        self._speech = counter("ethos_speech_seconds", "Seconds of speech.", ["direction"])
        self._tools = counter("ethos_tool_calls", "Calls of tools.", ["tool", "outcome"])
        self._memory = counter("ethos_memory_updates", "Memory updates brought to the files.", ["result"])
        self._prefetches = histogram(
            "ethos_memory_prefetch_seconds",
            "Reading the memory before a turn, earlier updates included, by whether it could be read.",
            ["outcome"],
            buckets=_PREFETCH_BUCKETS_S,
        )
        self._denied = counter("ethos_budget_refusals", "Calls for which a budget had no room.", ["scope", "what"])
        self._ingested = counter("ethos_ingest_turns", "Turns whose facts were taken, by each try.", ["outcome"])
        self._facts = counter("ethos_ingest_facts", "What became of the facts of turns.", ["result"])
        self._commits = histogram(
            "ethos_store_commit_seconds",
            "Commits; a durable one waits for the disk's fsync.",
            ["durable"],
            buckets=_DISK_BUCKETS_S,
        )
        self._group = histogram("ethos_store_group_size", "Writes that shared a commit.", buckets=_GROUP_BUCKETS)
        self._failures = counter("ethos_store_failures", "Commits that failed.")
        self._states = counter("ethos_channel_changes", "Changes of a channel's state.", ["channel", "state"])
        self._fired = counter(
            "ethos_schedules_fired", "Times of schedules, by what became of them.", ["mode", "outcome"]
        )
        self._called = counter("ethos_hooks_called", "Calls of hooks that proved themselves.", ["hook", "outcome"])
        self._requests = counter("ethos_http_requests", "Answered requests.", ["method", "status"])
        self.counts = {
            "model.call": self._call,
            "tool.call": self._tool,
            "memory.sync": self._sync,
            "memory.prefetch": self._prefetch,
            "memory.ingest": self._ingest,
        }

    def happened(self, name: str, facts: Mapping[str, Fact]) -> None:
        if name == "store.commit":
            self._commits.labels("yes" if facts["is_durable"] else "no").observe(float(facts["duration_s"]))
            self._group.observe(float(facts["jobs"]))
        elif name == "store.failure":
            self._failures.inc()
        elif name == "channel.state":
            self._states.labels(facts["channel"], facts["state"]).inc()
        elif name == "budget.denied":
            self._denied.labels(facts["scope"], facts["what"]).inc()
        elif name == "schedule.fired":
            self._fired.labels(facts["mode"], facts["outcome"]).inc()
        elif name == "hook.called":
            self._called.labels(facts["hook"], facts["outcome"]).inc()
        elif name == "http.request":
            self._requests.labels(facts["method"], facts["status"]).inc()

    def _call(self, span: Span) -> None:
        model = span.facts["model"]
        self._calls.labels(model, span.facts["purpose"], _outcome_of(span)).observe(span.duration_s)
        for direction in ("input", "output", "cached", "written"):
            self._tokens.labels(model, direction).inc(float(span.facts.get(f"{direction}_tokens", 0)))
        if "speech_s" in span.facts:
            direction = "heard" if span.facts["purpose"] == "listen" else "said"
            self._speech.labels(direction).inc(float(span.facts["speech_s"]))

    def _tool(self, span: Span) -> None:
        self._tools.labels(span.facts["tool"], span.facts.get("outcome", _outcome_of(span))).inc()

    def _sync(self, span: Span) -> None:
        self._memory.labels(span.facts["result"]).inc(float(span.facts["updates"]))

    def _prefetch(self, span: Span) -> None:
        outcome = {None: "read", "CancelledError": "released"}.get(span.error, "unread")
        self._prefetches.labels(outcome).observe(span.duration_s)

    def _ingest(self, span: Span) -> None:
        self._ingested.labels("released" if span.error == "CancelledError" else span.facts["outcome"]).inc()
        for result in ("stored", "proposed", "duplicate", "below_threshold", "over_limit"):
            self._facts.labels(result).inc(float(span.facts.get(result, 0)))


def _outcome_of(span: Span) -> str:
    """How a call ended, in one of a few words."""
    known = {None: "ok", "ModelUnavailable": "unavailable", "ModelRefused": "refused", "CancelledError": "cancelled"}
    return known.get(span.error, "failed")


class _Gauges:
    """How things stand when they are asked: from the last `Health`."""

    def __init__(self) -> None:
        self.health: Health | None = None
        self.budgets: Sequence[BudgetUse] = ()

    def collect(self) -> Iterator[Metric]:
        health = self.health
        if health is None:
            return
        yield InfoMetricFamily("ethos", "The running version.", value={"version": health.version})
        for name, text, value in (
            ("ethos_ready", "1 while messages are taken.", health.is_ready),
            ("ethos_store_writable", "1 while the database can be written.", health.store_problem is None),
            ("ethos_disk_free_bytes", "Room where the data directory is.", health.disk_free_bytes),
            ("ethos_turns_running", "Turns that run now.", health.turns_running),
            (
                "ethos_lanes_due",
                "Conversations with a message and no turn yet, of all workers together.",
                health.conversations_waiting,
            ),
            (
                "ethos_lane_oldest_s",
                "For how long the first of them has been waiting.",
                health.oldest_waiting_s,
            ),
            ("ethos_conversations_parked", "Conversations that wait for a model.", health.conversations_parked),
            ("ethos_schedules_late", "Schedules that are due and not taken up.", health.schedules_late),
            ("ethos_approvals_waiting", "Calls that wait for a yes.", health.approvals_waiting),
            (
                "ethos_memory_late_turns",
                "Turns whose memory updates could not be written yet.",
                health.memory_late,
            ),
            ("ethos_memory_up", "1 while the memory can be read.", health.memory.state == "up"),
            ("ethos_memory_journal_turns", "Turns whose updates stand in the journal only.", health.memory_journal),
        ):
            if value is not None:
                yield GaugeMetricFamily(name, text, value=value)
        yield from _of_queues(health.queues)
        yield from _of_channels(health.channels)
        up = [([model.name], model.state == "up") for model in health.models]
        yield _gauge("ethos_model_up", "1 when the model answered its last call.", ["model"], up)
        servers = [([server.name], server.state == "up") for server in health.servers]
        yield _gauge("ethos_server_up", "1 while the server of tools is connected.", ["server"], servers)
        tier = [] if health.sandbox_tier is None else [([health.sandbox_tier], 1)]
        yield _gauge("ethos_sandbox", "1 for how programs are shut in.", ["tier"], tier)
        yield from _of_budgets(self.budgets)


def _of_queues(queues: Sequence[QueueHealth]) -> Iterator[Metric]:
    labels = ["queue", "channel", "state"]
    messages = [([queue.queue, queue.channel, queue.state], queue.messages) for queue in queues]
    yield _gauge("ethos_queue_messages", "Unfinished rows and dead letters.", labels, messages)
    oldest = [([queue.queue, queue.channel, queue.state], queue.oldest_s) for queue in queues]
    yield _gauge("ethos_queue_oldest_seconds", "Age of the oldest of them.", labels, oldest)


def _of_channels(channels: Sequence[ChannelHealth]) -> Iterator[Metric]:
    up = [([channel.name, channel.kind], channel.state == "up") for channel in channels]
    yield _gauge("ethos_channel_up", "1 while the channel is connected.", ["channel", "kind"], up)
    last = [([channel.name], channel.last_exchange_at.timestamp()) for channel in channels if channel.last_exchange_at]
    name = "ethos_channel_last_exchange_timestamp_seconds"
    yield _gauge(name, "When a message came or went last.", ["channel"], last)


def _of_budgets(budgets: Sequence[BudgetUse]) -> Iterator[Metric]:
    for name, text, amount in (
        ("ethos_budget_used", "Spent today.", attrgetter("used")),
        ("ethos_budget_reserved", "Reserved by calls under way.", attrgetter("reserved")),
        ("ethos_budget_limit", "What may be spent in a day.", attrgetter("limit")),
    ):
        values = [([budget.scope, budget.what], amount(budget)) for budget in budgets]
        yield _gauge(name, text, ["scope", "what"], values)


def _gauge(name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=labels)
    for where, value in values:
        gauge.add_metric(where, value)
    return gauge
