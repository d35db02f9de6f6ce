"""The configuration: one YAML file in the data directory, or none.

Every key, with what it is for, stands in `config.example.yaml`; a test keeps the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator

from gateway.config.channel_kinds import Access, GroupAccess
from gateway.config.mcp import McpConfig
from gateway.config.memory_kinds import TRACES_KIND
from gateway.config.speech import SpeechConfig
from gateway.config.unattended import HeartbeatConfig, HookConfig, hook_name
from gateway.config.values import (
    AccountId,
    Count,
    Days,
    RootSecret,
    Seconds,
    Section,
    Share,
    Text,
    Usd,
    WebAddress,
    no_truth,
    off_worded,
    time_of_day,
    zone_name,
)
from gateway.config.watching import LogConfig, TelemetryConfig
from gateway.config.web import WebConfig
from gateway.config.workers import LEASE_S, StoreConfig, WorkerConfig
from gateway.domain.personalities.files import Thinking
from gateway.domain.sessions import LOCAL

OFFLINE = "offline"
"""The model that is always there: no key, no network."""
HELPER = "helper"
"""The model for small work, where there is one of this name."""


class ModelConfig(Section):
    """One model, by the name it has in `models`.

    Attributes:
        provider: `openai` is every server that speaks OpenAI's chat completions.
        model: the provider's own name of it.
        base_url: None for the provider's own service.
        timeout_s: until the first piece of an answer.
        silence_s: for the next piece of a streamed answer.
        max_retries: of one request, before a fallback is asked.
        fallbacks: names of other models, asked in this order when this one cannot answer.
        input_usd_per_million: price of a million input tokens; with None for one of both, the library's price list.
        cached_input_usd_per_million: of those that the provider reads from its cache; None: as all others.
        cache_write_usd_per_million: of those that it writes to its cache; None: as all others.
        max_output_tokens: for one answer; None leaves it to the provider.
        sees_images: pictures are sent to it; None: only at the provider's own service.
        thinking: before it answers; None leaves it to the provider.
    """

    provider: Literal["openai", "anthropic", "offline"]
    model: Text | None = None
    base_url: WebAddress | None = None
    api_key: SecretStr | None = None
    timeout_s: Seconds = 60
    silence_s: Seconds = 30
    max_retries: Annotated[Count, Field(ge=0, le=10)] = 2
    fallbacks: tuple[Text, ...] = ()
    input_usd_per_million: Usd | None = None
    output_usd_per_million: Usd | None = None
    cached_input_usd_per_million: Usd | None = None
    cache_write_usd_per_million: Usd | None = None
    max_output_tokens: Annotated[Count, Field(ge=1)] | None = None
    sees_images: bool | None = None
    thinking: Annotated[Thinking, BeforeValidator(off_worded)] | None = None

    @field_validator("model")
    @classmethod
    def _is_named(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("provider") in ("openai", "anthropic"):
            raise ValueError("missing; expected the provider's name of the model")
        return value

    @field_validator("api_key")
    @classmethod
    def _has_key(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        provider = info.data.get("provider")
        needs_key = provider == "anthropic" or (provider == "openai" and info.data.get("base_url", "") is None)
        if needs_key and not (value and value.get_secret_value().strip()):
            raise ValueError("missing; expected `${ENV_VAR}`, `{file: path}` or `{keyring: name}`")
        return value

    @field_validator("cached_input_usd_per_million", "cache_write_usd_per_million")
    @classmethod
    def _has_prices(cls, value: float | None, info: ValidationInfo) -> float | None:
        both = (info.data.get("input_usd_per_million"), info.data.get("output_usd_per_million"))
        if value is not None and None in both:
            raise ValueError("the other prices are missing; expected `input_` and `output_usd_per_million`, too")
        return value

    @field_validator("thinking")
    @classmethod
    def _can_think(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("provider") == "offline":
            raise ValueError("the offline model does not think; expected no `thinking`")
        return value


class ChannelConfig(Section):
    """One channel, by the name it has in `channels`.

    Attributes:
        kind: the platform: a package under `adapters`, or a dotted name of a third party's package.
        access: `owner` lets owners talk only, `allowlist` also those in `allow`, `pairing` also people an owner lets
            in, `open` everybody.
        access_in_groups: the same for groups, and `nobody`; None: as `access`.
        allow: the platform's ids of people.
        role: of people who have none of their own.
        personality: who answers here; None for the default one.
        settings: the adapter's own `Config`; None while the channel is not enabled.
    """

    kind: Text
    enabled: bool = True
    access: Access = "pairing"
    access_in_groups: GroupAccess | None = None
    allow: tuple[AccountId, ...] = ()
    role: Literal["member", "guest"] = "member"
    personality: Text | None = None
    settings: Any = Field(default=None, exclude=True)


class IngestConfig(Section):
    """What the trace memory keeps of a turn; a personality's traits change these.

    Attributes:
        threshold: facts less important than that are left out.
        most: facts of one turn.
        duplicate_from: a fact so similar to one that is there is left out.
        model: an entry of `models`; None for the default one.
    """

    enabled: bool = True
    threshold: Share = 0.4
    most: Annotated[Count, Field(ge=1, le=20)] = 3
    duplicate_from: Share = 0.85
    model: Text | None = None


class ConsolidateConfig(Section):
    """When traces are tidied up.

    Attributes:
        every_turns: of one person.
        at: the time of day, in UTC, for everything.
        model: for insights, an entry of `models`; None for the default one.
    """

    enabled: bool = True
    every_turns: Annotated[Count, Field(ge=1, le=100_000)] = 50
    at: Annotated[Text, AfterValidator(time_of_day)] = "03:00"
    model: Text | None = None


class EmbeddingsConfig(Section):
    """Vectors of the traces, so that they are found by what they mean; without a `model` there are none.

    `least_similarity` is the cosine that a trace must have to be found without a word of the question in it.
    """

    model: Text | None = None
    dimensions: Annotated[Count, Field(ge=1, le=16_384)] | None = None
    batch: Annotated[Count, Field(ge=1, le=2_048)] = 64
    query_timeout_s: Annotated[Seconds, Field(le=60)] = 1
    least_similarity: Share = 0.25


class TracesConfig(Section):
    """The trace memory: many small facts, in addition to the files.

    Attributes:
        recall: what stands in the prompt of a MEMORY.md that is too long, also where traces are off: `fill`, what the
            question needs and the newest; `tail`, the newest.
        recall_chars: room in a prompt for the facts that bear on a question.
        stability_days: in which a new fact that is never used fades to a third.
        gist: old facts that are hardly used are shortened; the full text stays in the archive.
    """

    enabled: bool = False
    recall: Literal["fill", "tail"] = "fill"
    recall_chars: Annotated[Count, Field(ge=0, le=200_000)] = 20_000
    stability_days: Days = 30
    ingest: IngestConfig = Field(default_factory=IngestConfig)
    consolidate: ConsolidateConfig = Field(default_factory=ConsolidateConfig)
    embeddings: EmbeddingsConfig = Field(default_factory=EmbeddingsConfig)
    gist: bool = False


class ProviderConfig(Section):
    """Where the memory is kept.

    Attributes:
        kind: one of ours, or a dotted name of a third party's package.
        erasure: `by_hand`: this memory cannot erase a person, and the operator does it; else such a one is refused.
        settings: the kind's own `Config`; None where nothing is set.
    """

    kind: Text = "markdown"
    erasure: Literal["by_hand"] | None = None
    settings: Any = Field(default=None, exclude=True)


class ToolPackageConfig(Section):
    """A package with tools.

    Attributes:
        package: the dotted name of a module that is installed.
        settings: the package's own `Config`; None where it cannot be used.
        fault: why it cannot be used, and is left out; empty where it can.
    """

    package: Text
    settings: Any = Field(default=None, exclude=True)
    fault: str = Field(default="", exclude=True)


class ToolsConfig(Section):
    """What the agent can do besides what it always can.

    Attributes:
        files: it has a workspace for each person and each group, with files that it reads and writes.
        python: it runs Python programs there, shut in.
        shell: it runs shell commands there, shut in.
        workspaces: a directory that all workers share, for the files of people and groups; only with `store.url`.
        questions: it asks questions with a button for each answer.
        delegate: it has sub-agents look into something.
        messages: it sends messages to the person's other accounts, and for an owner to other people.
        packages: tools of other authors.
        schema_tokens: what all descriptions may take of a prompt; where it is more, tools of packages have to be found.
    """

    files: bool = False
    python: bool = False
    shell: bool = False
    workspaces: Text | None = None
    questions: bool = False
    delegate: bool = False
    messages: bool = False
    packages: tuple[ToolPackageConfig, ...] = ()
    schema_tokens: Annotated[Count, Field(ge=0, le=1_000_000)] = 6_000

    @property
    def has_programs(self) -> bool:
        """Whether a sandbox is needed."""
        return self.python or self.shell

    @property
    def has_workspaces(self) -> bool:
        """Whether people and groups have files."""
        return self.files or self.has_programs


class SkillsConfig(Section):
    """Instructions that the agent loads when it needs them.

    Attributes:
        paths: further directories with skills, besides `skills/` in the data directory; relative to that one.
    """

    paths: tuple[Text, ...] = ()


class SandboxConfig(Section):
    """Where programs run that a model wrote.

    Attributes:
        command: put in front of a program in place of the gateway's own; `{workspace}` and `{temporary}` are replaced.
        network: whether they may use it; each run of one waits for a yes then.
    """

    command: tuple[Text, ...] = ()
    network: bool = False


class ApprovalsConfig(Section):
    """When a call of a tool waits for a yes.

    Attributes:
        expire_after_h: how long it waits.
        tainted: `destinations`: it does not wait where each destination stands in the person's own words, also once
            words of others were read.
    """

    expire_after_h: Annotated[float, BeforeValidator(no_truth), Field(gt=0, le=8_760)] = 72
    tainted: Literal["ask", "destinations"] = "ask"


class MemoryConfig(Section):
    """What is remembered.

    Attributes:
        max_chars: for the section of the prompt.
        max_file_bytes: for one document.
        lock_timeout_s: how long a write of a file waits for another process.
        timeout_s: how long a turn waits for the memory before it is answered without.
    """

    provider: ProviderConfig = Field(default_factory=ProviderConfig)

    max_chars: Annotated[Count, Field(ge=200, le=2_000_000)] = 20_000
    max_file_bytes: Annotated[Count, Field(ge=1_024, le=1 << 30)] = 524_288
    lock_timeout_s: Seconds = 10
    timeout_s: Annotated[Seconds, Field(le=60)] = 2
    traces: TracesConfig = Field(default_factory=TracesConfig)

    @property
    def has_traces(self) -> bool:
        """Whether the trace memory is used: it is on, or it is the memory."""
        return self.traces.enabled or self.provider.kind == TRACES_KIND


class LimitsConfig(Section):
    """What bounds the work of the gateway.

    Attributes:
        running_turns: at once, over all conversations.
        running_turns_per_user: of these, how many may be one account's.
        running_turns_per_program: of these, how many may be one key's on the API, behind which many people may be.
        queued_messages_per_user: of one account, waiting or being answered; what comes beyond that is refused.
        queued_messages_per_program: the same for one key on the API.
        parked_expire_after_h: how long a message waits for a model or a budget before it is given up.
        steps_per_turn: calls of the model in one turn.
        tool_calls_per_turn: calls of tools in one turn; further ones are refused.
        history_tokens: of a session, put in front of the model; older messages are summarised.
        max_message_chars: a longer message is refused, with a word to its writer.
        lease_s: how long a claim on a message lasts without a sign of life; 15 with a `store.url`.
    """

    running_turns: Annotated[Count, Field(ge=1, le=10_000)] = 64
    running_turns_per_user: Annotated[Count, Field(ge=1, le=10_000)] = 4
    running_turns_per_program: Annotated[Count, Field(ge=1, le=10_000)] = 48
    queued_messages_per_user: Annotated[Count, Field(ge=1, le=1_000_000)] = 100
    queued_messages_per_program: Annotated[Count, Field(ge=1, le=1_000_000)] = 1_000
    parked_expire_after_h: Annotated[float, BeforeValidator(no_truth), Field(gt=0, le=8_760)] = 168
    steps_per_turn: Annotated[Count, Field(ge=1, le=1_000)] = 12
    tool_calls_per_turn: Annotated[Count, Field(ge=1, le=1_000)] = 32
    turn_timeout_s: Seconds = 600
    history_tokens: Annotated[Count, Field(ge=500, le=10_000_000)] = 24_000
    max_message_chars: Annotated[Count, Field(ge=1, le=10_000_000)] = 100_000
    lease_s: Annotated[Seconds, Field(ge=5)] = 60

    def running_turns_of_one_account(self, channel: str) -> int:
        """How many turns of one account of the channel may run at once."""
        return self.running_turns_per_program if channel == LOCAL else self.running_turns_per_user

    def queued_messages_of_one_account(self, channel: str) -> int:
        """How many messages of one account of the channel may wait."""
        return self.queued_messages_per_program if channel == LOCAL else self.queued_messages_per_user


class DayBudget(Section):
    """What may be spent in one day; tokens are those of input and output together. None: no limit."""

    turns: Annotated[Count, Field(ge=0)] | None = None
    tokens: Annotated[Count, Field(ge=0)] | None = None
    usd: Usd | None = None


class BudgetsConfig(Section):
    """Hard budgets: a call of a model for which there is no room is not made.

    Attributes:
        time_zone: whose midnight begins a day; without it that of the configuration.
        user: for each person.
        personality: for each personality.
        personalities: for the personalities that are named, in place of `personality`.
        gateway: for everything together.
    """

    time_zone: Annotated[Text, AfterValidator(zone_name)] | None = None
    user: DayBudget | None = None
    personality: DayBudget | None = None
    personalities: dict[str, DayBudget] = Field(default_factory=dict)
    gateway: DayBudget | None = None

    @property
    def limits_money(self) -> bool:
        """Whether what models cost must be known."""
        budgets = (self.user, self.personality, self.gateway, *self.personalities.values())
        return any(budget is not None and budget.usd is not None for budget in budgets)


class SchedulesConfig(Section):
    """What is done at a time: reminders, tasks, watches.

    Attributes:
        enabled: the agent has tools for them, and what is due is done.
    """

    enabled: bool = True


class DeliveryConfig(Section):
    """How often, and at what distance, a message that could not be sent is tried again."""

    max_attempts: Annotated[Count, Field(ge=1, le=100)] = 8
    first_retry_s: Seconds = 1
    longest_retry_s: Seconds = 900
    give_up_after_h: Annotated[float, Field(gt=0, le=24 * 30)] = 24

    @field_validator("longest_retry_s")
    @classmethod
    def _is_longest(cls, value: float, info: ValidationInfo) -> float:
        first = info.data.get("first_retry_s", 0)
        if value < first:
            raise ValueError(f"{value:g} is less than first_retry_s; expected at least {first:g}")
        return value


class RetentionConfig(Section):
    """After how many days what is forgotten; None: never, unless its person is erased.

    Attributes:
        messages_days: texts in the queues, in and out; what was said stands in the sessions, too.
        sessions_days: counted from the last message of a session.
        memory_history_days: who changed which memory when; the memory itself is not touched.
        usage_days: single calls of models, and sums of days.
        tools_days: calls of tools, with their arguments.
        exports_days: files that `/export` made.
        copies_days: of the database, from before an upgrade.
        log_days: lines of the log file that `ethos chat` writes.
    """

    messages_days: Days | None = 90
    sessions_days: Days | None = None
    memory_history_days: Days | None = 365
    usage_days: Days | None = 400
    tools_days: Days | None = 30
    exports_days: Days | None = 7
    copies_days: Days | None = 30
    log_days: Days | None = 30


class Config(Section):
    """Everything that can be configured.

    Attributes:
        model: the entry of `models` for personalities that name none.
        models: by name; `offline` is always among them.
        personality: the default one.
        session_scope: `user` joins a person's direct chats over all channels into one session.
        time_zone: in which the clocks of people are read who have chosen none.
        channels: by name; the local channel is never among them, and always there.
        hooks: by name, which is the end of the address that services call.
        secret: of which the web token and the key for codes are derived; None: each is a file in the data directory.
        shutdown_s: how long running turns may take to finish when the gateway is told to stop.
    """

    model: Text = OFFLINE
    models: dict[str, ModelConfig] = Field(default_factory=dict)
    personality: Text = "assistant"
    session_scope: Literal["conversation", "user"] = "conversation"
    time_zone: Annotated[Text, AfterValidator(zone_name)] = "UTC"
    channels: dict[str, ChannelConfig] = Field(default_factory=dict)
    web: WebConfig = Field(default_factory=WebConfig)
    store: StoreConfig = Field(default_factory=StoreConfig)
    worker: WorkerConfig = Field(default_factory=WorkerConfig)
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    approvals: ApprovalsConfig = Field(default_factory=ApprovalsConfig)
    sandbox: SandboxConfig = Field(default_factory=SandboxConfig)
    skills: SkillsConfig = Field(default_factory=SkillsConfig)
    schedules: SchedulesConfig = Field(default_factory=SchedulesConfig)
    mcp: McpConfig = Field(default_factory=McpConfig)
    hooks: dict[Annotated[str, AfterValidator(hook_name)], HookConfig] = Field(default_factory=dict)
    heartbeat: HeartbeatConfig = Field(default_factory=HeartbeatConfig)
    speech: SpeechConfig = Field(default_factory=SpeechConfig)
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    budgets: BudgetsConfig = Field(default_factory=BudgetsConfig)
    delivery: DeliveryConfig = Field(default_factory=DeliveryConfig)
    log: LogConfig = Field(default_factory=LogConfig)
    retention: RetentionConfig = Field(default_factory=RetentionConfig)
    telemetry: TelemetryConfig = Field(default_factory=TelemetryConfig)
    secret: RootSecret | None = None
    shutdown_s: Annotated[float, BeforeValidator(no_truth), Field(ge=0, le=3_600)] = 10

    @field_validator("models")
    @classmethod
    def _has_offline(cls, models: dict[str, ModelConfig]) -> dict[str, ModelConfig]:
        return {OFFLINE: ModelConfig(provider="offline"), **models}

    @field_validator("limits")
    @classmethod
    def _has_lease(cls, limits: LimitsConfig, info: ValidationInfo) -> LimitsConfig:
        store = info.data.get("store")
        if store is None or store.url is None or "lease_s" in limits.model_fields_set:
            return limits
        return limits.model_copy(update={"lease_s": LEASE_S})

    @property
    def budget_zone(self) -> str:
        """Whose midnight begins a day of the budgets."""
        return self.budgets.time_zone or self.time_zone

    @property
    def limits_money(self) -> bool:
        """Whether what models cost must be known."""
        return self.budgets.limits_money or self.heartbeat.budget_usd_per_day is not None

    @property
    def has_others(self) -> bool:
        """Whether this is one worker of many."""
        return self.store.url is not None


@dataclass(slots=True)
class LiveConfig:
    """What the configuration is now: a reload gives another, so keep this and not what is in it."""

    current: Config
