"""Reads `config.yaml`: every error at once, each with its line, its column, and what was expected."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from gateway.config import OFFLINE, ChannelConfig, Config, ProviderConfig, ToolPackageConfig, ToolsConfig
from gateway.config.channel_kinds import ChannelKind, expected_kinds, known_kinds, load_kind
from gateway.config.listing import values_of
from gateway.config.memory_kinds import DEFAULT_KIND, PACKAGES, TRACES_KIND, kind_on_server, load_memory_kind
from gateway.config.packages import KindUnusable
from gateway.config.prices import price_usd
from gateway.config.secrets import expand_variables, fetch_secrets
from gateway.config.services import services_in
from gateway.config.tool_packages import load_tool_package
from gateway.config.unattended import check_unattended, named_personalities
from gateway.config.unwise import about_files, literals, warn
from gateway.config.workers import ROLES
from gateway.domain.personalities import Personalities
from gateway.domain.sessions import LOCAL
from gateway.errors import ConfigError
from gateway.files.atomic import is_id
from gateway.files.home import data_directory
from gateway.files.positions.validation import did_you_mean, shown, validate
from gateway.files.positions.yaml import (
    KeyPath,
    MarkedYaml,
    Problem,
    dotted,
    parse_marked_yaml,
    read_marked_yaml,
    value_at,
)
from gateway.runtime.extras import how_to_install

CONFIG_NAME = "config.yaml"
K = TypeVar("K")

_CORE_KEYS = frozenset(ChannelConfig.model_fields) - {"settings"}
_PROVIDER_KEYS = frozenset(ProviderConfig.model_fields) - {"settings"}
_BUILT_IN = ("cli", "web")
_OFF = frozenset({"false", "no", "off", "n", "f", "0"})  # what pydantic reads as false
_MODEL_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,64}")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be used.

    Attributes:
        path: of the file, whether it is there or not.
        warnings: what works and is not wise, one line for people each.
        sources: for each setting where it comes from: `config.yaml:12`, `config.yaml:12, from ${NAME}`, or `default`.
    """

    config: Config
    path: Path
    warnings: tuple[str, ...]
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Findings:
    """What `ethos config check` prints: problems keep the gateway from starting, warnings do not.

    Attributes:
        found: the same problems, each with its key and its place.
        warned: the same warnings, those about personalities left out.
        loaded: the configuration, where nothing is wrong with it.
        secrets: those that stand in the file itself.
    """

    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    found: tuple[Problem, ...] = field(default=(), compare=False)
    warned: tuple[Problem, ...] = field(default=(), compare=False)
    loaded: Loaded | None = field(default=None, compare=False)
    secrets: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(slots=True)
class _Reading:
    """One reading of the file, as far as it has come."""

    document: MarkedYaml
    home: Path
    path: Path
    warned: MarkedYaml
    expanded: dict[KeyPath, str] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    unwritten: Mapping[Path, str] = field(default_factory=dict)

    @property
    def hidden(self) -> set[KeyPath]:
        """Values that no message shows."""
        return {*self.expanded, *self.origins}


def check_own_accounts(channels: Mapping[str, ChannelConfig], document: MarkedYaml) -> None:
    """Complain of each enabled channel whose login another one has, by both names and without the login."""
    holders: dict[str, str] = {}
    for name, channel in channels.items():
        if channel.settings is None:
            continue
        accounts = load_kind(channel.kind).own_accounts(channel.settings)
        for other in sorted({holders.setdefault(account, name) for account in accounts} - {name}):
            text = f"has the same login or secret as the channel {other}; expected one of its own, or only one channel"
            document.complain(("channels", name), text, at_key=True)


def load_config(
    path: Path | None = None, *, home: Path | None = None, environment: Mapping[str, str] | None = None
) -> Loaded:
    """Read the configuration; without a file, the defaults.

    Blocks: it reads the file, those of secrets, and loads the packages of the channels that are configured.

    Args:
        path: of the file; `config.yaml` in the data directory when None.
        home: the data directory, where personalities are looked for; that of `path`, or `ETHOS_HOME`, when None.
        environment: for `${NAME}`; the process's own when None.

    Raises:
        ConfigError: with everything that is wrong.
    """
    reading, config = _read(path, home, environment)
    problems = reading.document.sorted_problems()
    if problems or config is None:
        raise ConfigError(problems)
    return _loaded_from(config, reading)


def _loaded_from(config: Config, reading: _Reading) -> Loaded:
    return Loaded(config, reading.path, tuple(reading.warned.sorted_problems()), dict(_sources(config, reading)))


def check(
    path: Path | None = None,
    *,
    home: Path | None = None,
    environment: Mapping[str, str] | None = None,
    data: bytes | None = None,
    unwritten: Mapping[Path, str] | None = None,
) -> Findings:
    """Everything that is wrong with the configuration, and everything unwise; the arguments are those of the load.

    Args:
        data: what is to stand in the file; None for what does.
        unwritten: what is to stand in files of secrets that are not there yet.
    """
    reading, config = _read(path, home, environment, data, unwritten)
    warnings = reading.warned.sorted_problems() if config else []
    warnings += about_files(config, reading.home) if config and data is None else []
    found = tuple(reading.document.problems)
    loaded = _loaded_from(config, reading) if config is not None and not found else None
    warned = tuple(reading.warned.problems) if config else ()
    literal = [value_at(reading.document.values, place) for place in literals(reading)]
    secrets = tuple(text for text in literal if isinstance(text, str))
    return Findings(tuple(reading.document.sorted_problems()), tuple(warnings), found, warned, loaded, secrets)


def _read(
    path: Path | None,
    home: Path | None,
    environment: Mapping[str, str] | None,
    data: bytes | None = None,
    unwritten: Mapping[Path, str] | None = None,
) -> tuple[_Reading, Config | None]:
    environment = os.environ if environment is None else environment
    if path is None:
        path = (home or data_directory(environment)) / CONFIG_NAME
    try:
        document = read_marked_yaml(path, path.name) if data is None else parse_marked_yaml(data, path.name)
    except FileNotFoundError:
        document = MarkedYaml(path.name)
        if path.is_symlink():
            document.complain((), "a link to a file that is not there; expected the file, or no link")
    warned = MarkedYaml(document.name, keys=document.keys, places=document.places)
    reading = _Reading(document, home or path.parent, path, warned, unwritten=unwritten or {})
    if not document.is_readable:
        return reading, None
    values = document.values
    values.setdefault("channels", {})
    # A channel that is switched off may lack everything: its library, its secrets. Only the core's own keys are read.
    for section in _sections(values["channels"]).values():
        if _is_off(section):
            for key in section.keys() - _CORE_KEYS:
                del section[key]
    reading.expanded = expand_variables(document, environment)
    reading.origins = fetch_secrets(document, Config, (), path.parent, reading.unwritten)
    channels = _channels(reading)
    _check_names(reading)
    made = {**values, "channels": channels, **_memory(reading), **_tools(reading), **services_in(reading)}
    config = validate(Config, document, values=made, hidden=reading.hidden)
    if config is not None:
        warn(config, reading)
        _check_prices(config, document)
        _check_embeddings(config, document)
        _check_traces(config, document)
        _check_workers(config, reading)
        _check_mcp(config, document)
    return reading, config


def _sections(values: Any) -> dict[str, dict[str, Any]]:
    """Those entries of a mapping of sections that are sections."""
    return {name: item for name, item in values.items() if isinstance(item, dict)} if isinstance(values, dict) else {}


def core_keys(channels: Any) -> Any:
    """The channels without what is their adapters'; another value as it is."""
    if not isinstance(channels, dict):
        return channels
    return {
        name: {key: section[key] for key in _CORE_KEYS & section.keys()} if isinstance(section, dict) else section
        for name, section in channels.items()
    }


def _is_off(section: dict[str, Any]) -> bool:
    """Whether a channel's `enabled` will be read as false; `no` and `off` are text in YAML 1.2, and understood too."""
    return str(section.get("enabled")).lower() in _OFF


def _channels(reading: _Reading) -> Any:
    """Each channel as a `ChannelConfig`; what is no section at all is left for the validation to refuse."""
    values = reading.document.values["channels"]
    if not isinstance(values, dict):
        return values
    made: dict[str, Any] = {}
    for name, section in values.items():
        if not is_id(name):
            text = f"{shown(name)} is not a channel's name; expected 1 to 64 of A-Z a-z 0-9 _ -"
            reading.document.complain(("channels", name), text, at_key=True)
        if name == LOCAL:
            text = "this name is kept for the terminal, the web page and programs; expected another name"
            reading.document.complain(("channels", name), text, at_key=True)
        if isinstance(section, dict):
            if (channel := _channel(name, section, reading)) is not None:
                made[name] = channel
        else:
            text = f"{shown(section)} is not a section; expected `kind: …` and the channel's keys"
            reading.document.complain(("channels", name), text)
    check_own_accounts(made, reading.document)
    return made


def _channel(name: str, section: dict[str, Any], reading: _Reading) -> ChannelConfig | None:
    document, path = reading.document, ("channels", name)
    if section.get("kind") in _BUILT_IN:
        text = "the terminal and the web page are built in and need no channel; take this channel out"
        document.complain(path, text, at_key=True)
        return None
    core = {key: value for key, value in section.items() if key in _CORE_KEYS}
    if "kind" not in section:
        document.complain((*path, "kind"), f"missing{did_you_mean(name, known_kinds())}; {expected_kinds()}")
        core["kind"] = name
    channel = validate(ChannelConfig, document, path, values=core, hidden=reading.hidden)
    if _is_off(section):
        return channel
    kind = _loaded(load_kind, section.get("kind"), (*path, "kind"), document)
    if kind is None:
        return None
    reading.origins |= fetch_secrets(document, kind.config, path, reading.path.parent, reading.unwritten)
    own = {key: value for key, value in section.items() if key not in _CORE_KEYS}
    settings = validate(kind.config, document, path, values=own, hidden=reading.hidden)
    if channel is None or settings is None:
        return None
    return channel.model_copy(update={**_access(name, core, channel, kind, reading), "settings": settings})


def _access(
    name: str, core: Mapping[str, Any], channel: ChannelConfig, kind: ChannelKind, reading: _Reading
) -> dict[str, Any]:
    """Who may talk, with the defaults of the kind and the ids in its form; warns of ids that match no account."""
    access = channel.access if "access" in core else kind.access_default
    # On a platform that anybody can join, a person whom no owner let in is a guest.
    is_for_strangers = "open" in (access, channel.access_in_groups) and kind.access_default != "open"
    role = channel.role if "role" in core else "guest" if is_for_strangers else "member"
    allow = []
    for index, entry in enumerate(channel.allow):
        try:
            allow.append(kind.account(entry))
        except ValueError as error:
            reading.warned.complain(("channels", name, "allow", index), f"{shown(entry)}: {error}")
    if is_for_strangers and channel.enabled:
        key = "access" if access == "open" else "access_in_groups"
        memory = "" if role == "guest" else ", and is told what is in the shared MEMORY.md (`role: guest` is not)"
        text = f"anybody on the platform who finds the agent may talk to it, at your cost{memory}; expected `pairing`"
        reading.warned.complain(("channels", name, key), text)
    return {"access": access, "role": role, "allow": tuple(allow)}


def _memory(reading: _Reading) -> dict[str, Any]:
    """The section with its provider as a `ProviderConfig`, where it has one that is a name or a section."""
    document, path = reading.document, ("memory", "provider")
    provider = value_at(document.values, path)
    if isinstance(provider, str):
        provider = {"kind": provider}
    if _is_on_server(document):
        provider = _on_server(provider, document)
    if not isinstance(provider, dict):
        return {}
    core = {key: value for key, value in provider.items() if key in _PROVIDER_KEYS}
    own = {key: value for key, value in provider.items() if key not in _PROVIDER_KEYS}
    if own and "kind" not in provider:
        document.complain((*path, "kind"), f"missing; {PACKAGES.expected()}")
    made = validate(ProviderConfig, document, path, values=core, hidden=reading.hidden)
    if made is not None and "kind" in provider and (own or made.kind != DEFAULT_KIND):
        kind = _loaded(load_memory_kind, made.kind, (*path, "kind"), document)
        if kind is not None:
            reading.origins |= fetch_secrets(document, kind.config, path, reading.path.parent, reading.unwritten)
            fetched = value_at(document.values, path)
            own = {key: fetched[key] for key in own}
            settings = validate(kind.config, document, path, values=own, hidden=reading.hidden)
            made = made.model_copy(update={"settings": settings})
    return {"memory": {**(document.values.get("memory") or {}), "provider": made or ProviderConfig()}}


def _tools(reading: _Reading) -> dict[str, Any]:
    """The section with its packages as `ToolPackageConfig`; one that cannot be used is warned of, and left out."""
    document, path = reading.document, ("tools", "packages")
    entries = value_at(document.values, path)
    if not isinstance(entries, list):
        return {}
    made = [
        _tool_package({"package": entry} if isinstance(entry, str) else entry, (*path, index), reading)
        for index, entry in enumerate(entries)
    ]
    return {"tools": {**document.values["tools"], "packages": tuple(one for one in made if one is not None)}}


def _tool_package(entry: Any, path: KeyPath, reading: _Reading) -> ToolPackageConfig | None:
    document = reading.document
    if not isinstance(entry, dict):
        document.complain(path, f"{shown(entry)} is no package; expected `package: …` and the package's keys")
        return None
    core = {key: value for key, value in entry.items() if key == "package"}
    chosen = validate(ToolPackageConfig, document, path, values=core, hidden=reading.hidden)
    if chosen is None:
        return None
    try:
        package = load_tool_package(chosen.package)
    except KindUnusable as error:
        reading.warned.complain((*path, "package"), f"{error}. Its tools are left out")
        return chosen.model_copy(update={"fault": str(error)})
    reading.origins |= fetch_secrets(document, package.config, path, reading.path.parent, reading.unwritten)
    fetched = value_at(document.values, path)
    own = {key: value for key, value in fetched.items() if key not in core} if isinstance(fetched, dict) else {}
    settings = validate(package.config, document, path, values=own, hidden=reading.hidden)
    return chosen.model_copy(update={"settings": settings})


def _is_on_server(document: MarkedYaml) -> bool:
    """Whether the gateway's database is a server, for many workers."""
    return value_at(document.values, ("store", "url")) is not None


def _on_server(provider: Any, document: MarkedYaml) -> Any:
    """The provider where many workers share the database; complains of one that keeps files of one machine."""
    kind = provider.get("kind") if isinstance(provider, dict) else None
    if provider is not None and not isinstance(kind, str):
        return provider
    try:
        return {"kind": kind_on_server(kind)} | (provider or {})
    except ValueError as error:
        document.complain(("memory", "provider"), str(error))
        return None


def memory_section(document: MarkedYaml, home: Path, expanded: Mapping[KeyPath, str]) -> Any:
    """The section of a file that has one, with its provider as a `ProviderConfig`, where that can be read.

    Args:
        home: what the paths of secrets are relative to.
        expanded: what came out of the environment, and is shown in no message.
    """
    reading = _Reading(document, home, home / CONFIG_NAME, MarkedYaml(document.name), dict(expanded))
    return _memory(reading).get("memory", document.values["memory"])


def load_provider(text: str, name: str, home: Path) -> ProviderConfig:
    """A memory that a command names: a kind, or a mapping in YAML as in the configuration.

    Args:
        name: of the option, for errors.
        home: what the paths of secrets are relative to.

    Raises:
        ConfigError: with everything that is wrong.
    """
    is_kind = not set(text) & set("{}:\n")
    document = MarkedYaml(name, values={"kind": text}) if is_kind else parse_marked_yaml(text.encode(), name)
    document.values = {"memory": {"provider": document.values}}
    expanded = expand_variables(document, os.environ) if document.is_readable else {}
    made: ProviderConfig = memory_section(document, home, expanded)["provider"]
    if document.problems:
        paths = [one.path.removeprefix("memory.provider").removeprefix(".") for one in document.problems]
        found = zip(paths, document.problems, strict=True)
        raise ConfigError([": ".join(filter(None, (name, path, one.text))) for path, one in found])
    return made


def _loaded(load: Callable[[str], K], kind: object, path: KeyPath, document: MarkedYaml) -> K | None:
    if not isinstance(kind, str):
        return None  # the validation has said so
    try:
        return load(kind)
    except KindUnusable as error:
        document.complain(path, str(error))
        return None


def _check_names(reading: _Reading) -> None:
    """What refers to an entry elsewhere must find it; looked up in the text itself, so that other errors hide none."""
    document, values = reading.document, reading.document.values
    models = _sections(values.get("models"))
    for name in models:
        if not _MODEL_NAME.fullmatch(name):
            text = f"{shown(name)} is not a model's name; expected 1 to 64 of A-Z a-z 0-9 . _ : / -"
            document.complain(("models", name), text, at_key=True)
    check_unattended(document)
    if OFFLINE in models and models[OFFLINE] != {"provider": OFFLINE}:
        text = "this name is kept for the offline model; expected another name"
        document.complain(("models", OFFLINE), text, at_key=True)
    model_names = [OFFLINE, *(name for name in models if name != OFFLINE)]
    fallbacks: list[KeyPath] = [
        ("models", name, "fallbacks", index)
        for name, section in models.items()
        for index in range(len(section["fallbacks"]) if isinstance(section.get("fallbacks"), list) else 0)
    ]
    trace_models: list[KeyPath] = [
        ("memory", "traces", part, "model") for part in ("ingest", "consolidate", "embeddings")
    ]
    for path in [("model",), *fallbacks, *trace_models]:
        _check_reference(reading, path, "model", model_names)
    _check_circles(models, document)
    if _is_on_server(document):
        return  # there the personalities are in the database, and a turn says which there are
    personalities = Personalities(reading.home).ids()
    channels = [("channels", name, "personality") for name in _sections(values["channels"])]
    for path in [("personality",), *channels, *named_personalities(values)]:
        _check_reference(reading, path, "personality", personalities)
    budgets = value_at(values, ("budgets", "personalities"))
    for name in budgets if isinstance(budgets, dict) else ():
        if name not in personalities:
            near, known = did_you_mean(name, personalities), ", ".join(personalities)
            text = f"there is no personality {shown(name)}{near}; expected one of {known}"
            document.complain(("budgets", "personalities", name), text, at_key=True)


def _check_reference(reading: _Reading, path: KeyPath, what: str, known: Collection[str]) -> None:
    name = value_at(reading.document.values, path)
    if isinstance(name, str) and name not in known:
        text = f"there is no {what} {shown(name)}{did_you_mean(name, known)}"
        if path in reading.expanded:
            text = f"{reading.expanded[path]} names no {what}"
        reading.document.complain(path, f"{text}; expected one of {', '.join(known)}")


def _check_embeddings(config: Config, document: MarkedYaml) -> None:
    """Vectors come over OpenAI's wire format alone."""
    name = config.memory.traces.embeddings.model
    if name is not None and name in config.models and config.models[name].provider != "openai":
        text = (
            f"{shown(name)} has the provider {config.models[name].provider}, which gives no embeddings; expected a "
            "model whose provider is openai, with the `base_url` of any server that speaks OpenAI's embeddings"
        )
        document.complain(("memory", "traces", "embeddings", "model"), text)


def _check_traces(config: Config, document: MarkedYaml) -> None:
    """What is the memory cannot be off."""
    traces = config.memory.traces
    if config.memory.provider.kind == TRACES_KIND and "enabled" in traces.model_fields_set and not traces.enabled:
        text = "off, but `memory.provider` is traces, which needs it; expected true, or the line left out"
        document.complain(("memory", "traces", "enabled"), text)


def _check_workers(config: Config, reading: _Reading) -> None:
    """Many workers have one secret; the only one has all roles and channels."""
    document, known, named = reading.document, [*config.channels], config.worker.channels
    for index, name in enumerate(named if named != "all" else ()):
        if name not in known:
            text = (
                f"there is no channel {shown(name)}{did_you_mean(name, known)}; expected `all`, or names of `channels`"
            )
            document.complain(("worker", "channels", index), text)
    if not config.has_others:
        if named != "all" or config.worker.roles != ROLES:
            text = "has no effect without `store.url`: the only worker has all channels and roles"
            reading.warned.complain(("worker",), text)
        if config.tools.workspaces is not None:
            text = "has no effect without `store.url`: the files of people are in the data directory"
            reading.warned.complain(("tools", "workspaces"), text)
        return
    _check_workspaces(config.tools, reading)
    if config.secret is None:
        text = "missing; workers that share a database have one secret: `openssl rand -hex 32`, as `${ETHOS_SECRET}`"
        document.complain(("secret",), text)


def _check_workspaces(tools: ToolsConfig, reading: _Reading) -> None:
    """A workspace is a directory, which workers on other machines have, too, only where it is shared."""
    path = ("tools", "workspaces")
    if tools.workspaces is None:
        for name in ("files", "python", "shell"):
            if getattr(tools, name):
                text = (
                    "true, but with `store.url` workers on other machines would not have these files; set "
                    "`tools.workspaces` to a directory that all workers share, such as NFS or a ReadWriteMany volume"
                )
                reading.document.complain(("tools", name), text)
    elif not Path(tools.workspaces).is_absolute():
        reading.document.complain(path, f"{shown(tools.workspaces)} is no whole path; expected one such as /mnt/ethos")


def _check_mcp(config: Config, document: MarkedYaml) -> None:
    """Servers of tools are spoken to by a library that not everybody has."""
    if config.mcp.servers and find_spec("mcp") is None:
        document.complain(
            ("mcp", "servers"), f"the library mcp is not installed; run {how_to_install('mcp')}", at_key=True
        )


def _check_prices(config: Config, document: MarkedYaml) -> None:
    """A budget of money needs the price of whatever may be called."""
    if config.limits_money:
        for name, model in config.models.items():
            if price_usd(model, 1_000, 1_000) is None:
                text = (
                    "the price of this model is unknown, and a budget limits money; expected `input_usd_per_million` "
                    "and `output_usd_per_million` (0 for a model of your own)"
                )
                document.complain(("models", name), text, at_key=True)
        for key, service in (("listen", config.speech.listen), ("speak", config.speech.speak)):
            if service is not None and service.usd_per_minute is None:
                text = "its price is unknown, and `budgets` limits money; expected `usd_per_minute` (0 for your own)"
                document.complain(("speech", key), text, at_key=True)


def _check_circles(models: dict[str, dict[str, Any]], document: MarkedYaml) -> None:
    """A model must not, over any number of fallbacks, fall back on itself."""
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        fallbacks = models.get(name, {}).get("fallbacks")
        for index, fallback in enumerate(fallbacks if isinstance(fallbacks, list) else ()):
            if fallback in way:
                circle = " → ".join((*way[way.index(fallback) :], fallback))
                document.complain(
                    ("models", name, "fallbacks", index), f"falls back in a circle ({circle}); expected an end"
                )
            elif isinstance(fallback, str) and fallback not in done:
                visit(fallback, (*way, fallback))
        done.add(name)

    for name in models:
        if name not in done:
            visit(name, (name,))


def _sources(config: Config, reading: _Reading) -> Iterator[tuple[str, str]]:
    for path, _ in values_of(config):
        place = reading.document.keys.get(path)
        origin = reading.origins.get(path) or reading.expanded.get(path)
        if place is None:
            yield dotted(path), "default"
        else:
            where = f"{reading.document.name}:{place.line}"
            yield dotted(path), f"{where}, from {origin}" if origin else where
