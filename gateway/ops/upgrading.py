"""What an upgrade would meet, looked at by the new program before it takes over. It changes nothing."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from gateway import __version__
from gateway.config import Config
from gateway.config.defaults import is_set, known_defaults
from gateway.config.file import CONFIG_NAME, check, load_config
from gateway.config.workers import StoreConfig
from gateway.errors import ConfigError, EthosError
from gateway.files.home import DATABASE_NAME
from gateway.files.last_backup import last_backup
from gateway.files.last_start import LastStart, last_start
from gateway.files.positions.validation import did_you_mean
from gateway.files.positions.yaml import read_marked_yaml
from gateway.runtime.extras import DISTRIBUTION, how_to_install
from gateway.store.sqlite.schema import OLDEST_SQLITE, Migration, migrations, schema_version
from gateway.traces.trace_store import TRACES_NAME

Level = Literal["problem", "warning", "note"]

OLD_BACKUP = timedelta(days=1)
# Besides the copy of the database: for its log while the tables change, and for the messages that come in.
SPARE_BYTES = 64 * 1024 * 1024
_MIB = 1024 * 1024
_HEADER_BYTES = 100
_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to know before an upgrade.

    Attributes:
        level: a `problem` would keep the new program from working; a `warning` is to be looked at first.
        what: is the case.
        advice: what to do; empty for a note.
    """

    level: Level
    what: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """One database, and the steps from its schema to that of this program.

    Attributes:
        place: a path, or the server's name without a password.
        version: of its schema; None where there is no database yet, or it cannot be read.
        newest: that this program knows.
        steps: the migrations that its first start would run.
    """

    place: str
    version: int | None
    newest: int
    steps: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """How the keys of the configuration differ from those of the program that served last.

    Attributes:
        new: this program has them.
        gone: it has them no more.
        defaults: whose default changed and which the file leaves out: before and now.
    """

    new: Sequence[str] = ()
    gone: Sequence[str] = ()
    defaults: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """All that was found.

    Attributes:
        version: of this program.
        last: of the program that served from the data directory last; None where there is no word of it.
        keys: None where that program is not known.
    """

    version: str
    last: LastStart | None
    databases: Sequence[Database]
    keys: Keys | None
    points: Sequence[Point]

    @property
    def is_possible(self) -> bool:
        """Whether nothing is in the way."""
        return not any(point.level == "problem" for point in self.points)


def look(home: Path, running: str | None, database: StoreConfig | ConfigError) -> Upgrade:
    """Look at everything. Blocks.

    Args:
        running: the version of the gateway that runs; None where none does, or it does not say.
        database: where the configuration has it; or why that cannot be read.
    """
    last = last_start(home)
    databases, of_databases = _databases(home, database)
    config, of_configuration = _configuration(home)
    keys = None if last is None else _compared(last.defaults, home, config)
    points = [
        *_about_versions(last, running),
        *of_databases,
        *_about_room(home, databases),
        *of_configuration,
        *(() if keys is None else _about_keys(keys, home)),
        *_about_packages(config),
        *_about_libraries(),
        *_about_backup(home),
    ]
    return Upgrade(version=__version__, last=last, databases=databases, keys=keys, points=points)


# ---- versions -------------------------------------------------------------------------------------------------------


def _about_versions(last: LastStart | None, running: str | None) -> Iterator[Point]:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 (only this command needs it)

    before = running or (None if last is None else last.version)
    if before is None:
        yield Point("note", f"This is version {__version__}. Which version used the data last is not known.")
        return
    who = "the gateway that runs" if running else "the gateway that ran last"
    yield Point("note", f"This is version {__version__}; {who} is version {before}.")
    try:
        is_older = Version(__version__) < Version(before)
    except InvalidVersion:
        return
    if is_older:
        advice = "Install the newer version again, or restore a backup that the older one made."
        yield Point("warning", f"This program is older than {who}.", advice)


# ---- databases ------------------------------------------------------------------------------------------------------


def _databases(home: Path, database: StoreConfig | ConfigError) -> tuple[list[Database], list[Point]]:
    if isinstance(database, ConfigError):
        advice = "Correct it, or call the command where its variables are set."
        return [], [Point("problem", f"Where the database is cannot be read: {database}", advice)]
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        what = f"The SQLite of this Python is {sqlite3.sqlite_version}; {oldest} or newer is needed."
        return [], [Point("problem", what, "Use a Python that is built with a newer one.")]
    if database.url is not None:
        return _on_server(database.url.get_secret_value(), is_by_hand=database.upgrade == "by_hand")
    found = [_in_file(home / DATABASE_NAME, migrations()), _in_file(home / TRACES_NAME, migrations("gateway.traces"))]
    databases = [one for one in found if one is not None]
    if not databases:
        return [], [Point("note", f"There is no database in {home} yet; the first start makes it.")]
    return databases, [point for one in databases for point in _about_schema(one)]


def _in_file(path: Path, known: Sequence[Migration]) -> Database | None:
    return _looked_at(str(path), _version(path), known) if path.exists() else None


def _version(path: Path) -> int | None:
    """The schema version of a file; read from its header while no process has it open, which makes no file beside it.

    https://www.sqlite.org/fileformat2.html#user_version_number (2026-11)
    """
    if path.with_name(f"{path.name}-wal").exists():
        return schema_version(path)
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return None
    return int.from_bytes(header[60:64]) if header.startswith(_SQLITE) else None


def _looked_at(place: str, version: int | None, known: Sequence[Migration]) -> Database:
    steps = [step.name for step in known if version is not None and step.version > version]
    return Database(place=place, version=version, newest=known[-1].version, steps=steps)


def _on_server(url: str, *, is_by_hand: bool) -> tuple[list[Database], list[Point]]:
    try:
        from gateway.store.postgres.engine import Server  # noqa: PLC0415 (psycopg is an extra)
        from gateway.store.postgres.schema import steps, version_of  # noqa: PLC0415 (as above)
    except ImportError:
        advice = f"Run {how_to_install('postgres', 'psycopg')}."
        return [], [Point("problem", "The database is on PostgreSQL, and psycopg is not installed.", advice)]
    try:
        found = _looked_at(Server(url).shown, version_of(url), steps())
    except EthosError as error:
        return [], [Point("problem", str(error), "The check needs the server. It changes nothing there.")]
    points = list(_about_schema(found, takes_newer=True))  # one that is too new for us was refused above
    if found.steps and is_by_hand:
        advice = "Call `ethos store upgrade` before you start the new version."
        points.append(Point("warning", "The tables change only by hand, as `store.upgrade` says.", advice))
    return [found], points


def _about_schema(found: Database, *, takes_newer: bool = False) -> Iterator[Point]:
    if found.version is None:
        yield Point("problem", f"{found.place} cannot be read, or is no database.", "`ethos doctor` says more.")
    elif found.version > found.newest and not takes_newer:
        yield Point(
            "problem",
            f"{found.place} has schema version {found.version}, and this program knows versions up to {found.newest}.",
            "Install the version that used it last, or a newer one.",
        )
    elif found.steps:
        named = ", ".join(found.steps)
        what = f"The first start changes {found.place} from schema version {found.version} to {found.newest}: {named}."
        yield Point("note", what)
    else:
        yield Point("note", f"{found.place} needs no change: schema version {found.version}.")


def _about_room(home: Path, databases: Sequence[Database]) -> Iterator[Point]:
    """A file is copied before its tables change."""
    files = [Path(one.place) for one in databases if one.steps and Path(one.place).is_file()]
    if not files:
        return
    parts = [path.with_name(path.name + end) for path in files for end in ("", "-wal")]
    needed = sum(part.stat().st_size for part in parts if part.exists())
    free = shutil.disk_usage(home).free
    shown = f"{needed / _MIB:,.0f} MiB; {free / _MIB:,.0f} MiB are free"
    if free < needed + SPARE_BYTES:
        yield Point("problem", f"The copy that is made first needs {shown}.", f"Make room where {home} is.")
    else:
        yield Point("note", f"The database is copied first, which takes {shown}.")


# ---- configuration --------------------------------------------------------------------------------------------------


def _configuration(home: Path) -> tuple[Config | None, list[Point]]:
    """The configuration as this program reads it, and what is wrong with it."""
    problems = check(home / CONFIG_NAME, home=home).problems
    if problems:
        advice = f"Correct {home / CONFIG_NAME} when the new version takes over; `ethos config check` shows it again."
        return None, [
            Point("problem", f"This program does not take the configuration:\n{line}", advice) for line in problems
        ]
    return load_config(home / CONFIG_NAME, home=home).config, []


def _compared(before: Mapping[str, Any], home: Path, config: Config | None) -> Keys:
    now = known_defaults(config or Config())
    if config is None:  # what its kinds have is not known
        before = {key: default for key, default in before.items() if "[" not in key}
    values = _written(home)
    return Keys(
        new=[key for key in now if key not in before],
        gone=[key for key in before if key not in now],
        defaults={
            key: (before[key], default)
            for key, default in now.items()
            if key in before and before[key] != default and not is_set(values, key)
        },
    )


def _about_keys(keys: Keys, home: Path) -> Iterator[Point]:
    values = _written(home)
    for key in keys.gone:
        near = did_you_mean(key, keys.new)
        if is_set(values, key):
            advice = "Change it when the new version takes over; CHANGELOG.md says what came in its place."
            yield Point("warning", f"The configuration has `{key}`, which this version has no more{near}.", advice)
        else:
            yield Point("note", f"The key `{key}` is gone{near}; the configuration does not use it.")
    for key, (was, now) in keys.defaults.items():
        advice = f"To keep it as it was, write it into {home / CONFIG_NAME} first."
        yield Point("warning", f"The default of `{key}` was {_shown(was)}, and is {_shown(now)} now.", advice)
    if keys.new:
        yield Point("note", f"New keys: {', '.join(keys.new)}. Each has a default; config.example.yaml explains them.")


def _written(home: Path) -> Any:
    """What config.yaml has, without a look at its meaning."""
    try:
        return read_marked_yaml(home / CONFIG_NAME, CONFIG_NAME).values
    except OSError:
        return {}


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- packages and libraries -----------------------------------------------------------------------------------------


def _about_packages(config: Config | None) -> Iterator[Point]:
    """Packages of other authors that this program cannot use. Those of channels are mistakes of the configuration."""
    if config is None:
        return
    faults = {chosen.package: chosen.fault for chosen in config.tools.packages}
    for service in (config.web.search, config.speech.listen, config.speech.speak):
        faults |= {} if service is None else {service.kind: service.fault}
    for package, fault in faults.items():
        if fault:
            advice = "It would be left out. Install a version of it that was made for this one, or take it out."
            yield Point("problem", f"The package {package} does not fit: {fault}.", advice)


def _about_libraries() -> Iterator[Point]:
    from packaging.requirements import Requirement  # noqa: PLC0415 (only this command needs it)

    try:
        declared = [Requirement(one) for one in metadata.requires(DISTRIBUTION) or []]
    except metadata.PackageNotFoundError:  # a checkout that was never installed
        declared = []
    unfit: dict[str, str] = {}
    for one in declared:
        is_base = one.marker is None or one.marker.evaluate({"extra": ""})
        there = _installed(one.name)
        is_unfit = there is not None and not one.specifier.contains(there, prereleases=True)
        if one.name != DISTRIBUTION and (is_unfit or (there is None and is_base)):
            unfit[one.name] = f"{one.name} {one.specifier} is needed, and {there or 'none'} is installed"
    for what in unfit.values():
        yield Point(
            "problem", f"A library does not fit: {what}.", "Install this version once more, with its libraries."
        )
    for name, wanted in _who_needs_us():
        if not Requirement(wanted).specifier.contains(__version__, prereleases=True):
            what = f"The package {name} was made for `{wanted}`; this is {__version__}."
            yield Point("warning", what, "Look for a newer version of it.")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _who_needs_us() -> Collection[tuple[str, str]]:
    """Installed packages that ask for us, each with what it asks for."""
    return {
        (one.name, wanted)
        for one in metadata.distributions()
        for wanted in one.requires or ()
        if wanted.replace("_", "-").lower().startswith(DISTRIBUTION) and one.name != DISTRIBUTION
    }


# ---- the way back ---------------------------------------------------------------------------------------------------


def _about_backup(home: Path) -> Iterator[Point]:
    last = last_backup(home)
    advice = "Make one with the program that runs now: `ethos backup DIRECTORY`. It is the way back."
    if last is None:
        yield Point("warning", "No backup was made of this data directory.", advice)
        return
    age = datetime.now(UTC) - last.at
    hours = age / timedelta(hours=1)
    shown = f"{hours / 24:.0f} days" if age > 2 * OLD_BACKUP else f"{hours:.0f} hours"
    what = f"The last backup, {last.file}, is {shown} old."
    yield Point("warning", what, advice) if age > OLD_BACKUP else Point("note", what)
