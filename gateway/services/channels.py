"""Channels: the kinds that there are, a login tried, and channels added, changed, paused, tested and removed."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gateway.config import ChannelConfig, Config, LiveConfig
from gateway.config.channel_keys import is_reference, keys_of, secret_names
from gateway.config.channel_kinds import ACCESS_DEFAULT, ChannelKind, known_kinds, load_kind, setup_of
from gateway.config.channel_setup import KindSetup
from gateway.config.editing import REMOVED, Changes, Secret, file_now, propose
from gateway.config.file import CONFIG_NAME, check
from gateway.config.packages import KindUnusable
from gateway.domain.channels import Channels
from gateway.errors import ConfigError, EthosError, FileError
from gateway.files.positions.splicing import CannotSplice
from gateway.files.positions.yaml import KeyPath
from gateway.pipeline.health import Checkup
from gateway.protocols import Trial
from gateway.runtime.extras import how_to_install, is_installed
from gateway.runtime.logs import hiding, secrets_in
from gateway.sdk.models import channels as wire
from gateway.sdk.models.deliveries import Queue
from gateway.sdk.models.system import Health
from gateway.services.caller import KEYS_BELOW, Caller, Malformed, NotFound, Refused
from gateway.services.config_writing import ConfigWriting
from gateway.services.deliveries import DeliveryService

TRIAL_S = 60.0
KEPT = "**********"
"""Shown in place of a secret that stands in the file; on the way back it leaves the secret as it is."""
_SETTLED = frozenset({"dead", "done", "sent", "dropped"})
_PAGE = 200
_TRIED = "a-login-that-is-tried"
"""The name that a channel has while its login is tried."""

_log = logging.getLogger(__name__)


class ChannelService:
    """The operator's: a channel holds a login, and lets people in."""

    def __init__(
        self,
        *,
        home: Path,
        config: LiveConfig,
        channels: Channels,
        checkup: Checkup,
        deliveries: DeliveryService,
        writing: ConfigWriting,
        is_running: Callable[[], bool],
        hide: Callable[[str], str],
    ) -> None:
        """`hide` strikes the secrets of the configuration from a text."""
        self._home = home
        self._config = config
        self._channels = channels
        self._checkup = checkup
        self._deliveries = deliveries
        self._writing = writing
        self._is_running = is_running
        self._hide = hide

    # ---- kinds ------------------------------------------------------------------------------------------------------

    async def kinds(self, caller: Caller) -> Sequence[wire.ChannelKind]:
        """The kinds that come with the gateway, by their titles; none is loaded for that.

        Raises:
            NotAllowed: it is not the operator.
        """
        caller.refuse_keys()
        found = await asyncio.to_thread(lambda: [_kind(name, setup_of(name)) for name in known_kinds()])
        return sorted(found, key=lambda kind: kind.title.casefold())

    async def kind(self, caller: Caller, kind: str) -> wire.ChannelKindDetail:
        """One kind, of ours or of a third party's package, with its keys and the way to a login.

        Raises:
            NotFound: there is no such kind.
            NotAllowed: as `kinds`.
        """
        caller.refuse_keys()
        setup = await self.setup(caller, kind)
        try:
            loaded = await asyncio.to_thread(load_kind, kind)
        except KindUnusable as error:
            if kind in known_kinds():
                missing = _kind(kind, setup).model_copy(update={"install": how_to_install(kind).strip("`")})
                return _detail(missing, setup, None)
            raise NotFound(str(error)) from error
        return _detail(_kind(kind, setup), setup, loaded)

    async def setup(self, caller: Caller, kind: str) -> KindSetup | None:
        """The steps to a login, with their pictures; None where the kind's package brings none. Raises as `kinds`."""
        caller.refuse_keys()
        try:
            return await asyncio.to_thread(setup_of, kind)
        except ConfigError as error:
            _log.warning("the steps of %s cannot be shown: %s", kind, error)
            return None

    # ---- channels ---------------------------------------------------------------------------------------------------

    async def listed(self, caller: Caller) -> Sequence[wire.Channel]:
        """All channels of the configuration, in its order; raises as `kinds`."""
        caller.refuse_keys()
        health = await self._checkup.health()
        return [_channel(name, one, health) for name, one in self._config.current.channels.items()]

    async def get(self, caller: Caller, name: str) -> wire.ChannelDetail:
        """One channel, with its keys as they stand in the file.

        Raises:
            NotFound: the configuration has no channel of that name.
            NotAllowed: as `kinds`.
        """
        caller.refuse_keys()
        channel = self._config.current.channels.get(name)
        if channel is None:
            self._refuse_unknown(name)
        found = _channel(name, channel, await self._checkup.health())
        entry = (await self._entries()).get(name, {})
        secret = await asyncio.to_thread(_secret_names, channel.kind)
        shown = {key: _shown(value, key, secret) for key, value in entry.items() if key not in ("kind", "enabled")}
        can = self._channels.capabilities(name)
        return wire.ChannelDetail(
            **found.model_dump(by_alias=False),
            command_form="/{command}" if can is None else can.command_form,
            settings=shown,
        )

    async def tried(self, caller: Caller, login: wire.ChannelLogin) -> wire.ChannelTrial:
        """Ask the platform who a login is; nothing is written, sent or changed.

        Raises:
            Malformed: the settings are not those of the kind; has the problem of each key.
            NotFound: there is no such kind, or no such channel.
            Refused: the kind cannot try a login, or a library is missing.
            NotAllowed: as `kinds`.
        """
        caller.refuse_keys()
        kind = await self._loaded(login.kind)
        if login.channel is None:
            changes: Changes = {("channels", _TRIED): _entry(kind, login.kind, login.settings)}
        else:
            changes = _changed_keys(kind, login.channel, login.settings, await self._entry(login.channel))
        return await self._trial(kind, login.channel or _TRIED, changes)

    async def tested(self, caller: Caller, name: str) -> wire.ChannelTrial:
        """Ask the platform who the login of a channel is; it may be connected or paused.

        Raises:
            NotFound, Refused, NotAllowed: as `tried`.
            Malformed: the channel is paused, and could not be resumed as it is.
        """
        caller.refuse_keys()
        await self._entry(name)
        kind = await self._loaded(self._config.current.channels[name].kind)
        return await self._trial(kind, name, {})

    async def added(self, caller: Caller, new: wire.NewChannel) -> wire.ChannelChange:
        """Write a channel into config.yaml, and connect it.

        Raises:
            Malformed: the settings are not those of the kind; has the problem of each key.
            NotFound: there is no such kind.
            Refused: there is a channel of that name, a library is missing, or the file cannot be changed.
            NotAllowed: as `kinds`.
        """
        caller.refuse_keys()
        kind = await self._loaded(new.kind)
        if new.name in await self._entries():
            raise Malformed(
                f"there is a channel {new.name} already; choose another name",
                {"name": "there is a channel of this name already; choose another one"},
            )
        return await self._write(new.name, {("channels", new.name): _entry(kind, new.kind, new.settings)})

    async def changed(self, caller: Caller, name: str, change: wire.ChangeChannel) -> wire.ChannelChange:
        """Change keys of a channel; it is connected again where that needs it. Raises as `added`, and NotFound."""
        caller.refuse_keys()
        entry = await self._entry(name)
        kind = await self._loaded(self._config.current.channels[name].kind)
        return await self._write(name, _changed_keys(kind, name, change.settings, entry))

    async def paused(self, caller: Caller, name: str) -> wire.ChannelChange:
        """Disconnect a channel and keep it; what waits for it waits on. Raises as `changed`."""
        return await self._switched(caller, name, is_on=False)

    async def resumed(self, caller: Caller, name: str) -> wire.ChannelChange:
        """Connect a paused channel again. Raises as `changed`."""
        return await self._switched(caller, name, is_on=True)

    async def removed(self, caller: Caller, name: str, *, drop_waiting: bool = False) -> wire.ChannelChange:
        """Take a channel out of config.yaml and disconnect it; its conversations and its people stay.

        Args:
            drop_waiting: what waits for it is dropped; else it waits for a channel of the same name.

        Raises:
            NotFound, Refused, NotAllowed: as `changed`.
        """
        caller.refuse_keys()
        await self._entry(name)
        change = await self._write(name, {("channels", name): REMOVED})
        dropped = await self._drop(caller, name) if drop_waiting else 0
        return change.model_copy(update={"dropped": dropped})

    # ---- inside -----------------------------------------------------------------------------------------------------

    async def _switched(self, caller: Caller, name: str, *, is_on: bool) -> wire.ChannelChange:
        caller.refuse_keys()
        await self._entry(name)
        return await self._write(name, {("channels", name, "enabled"): is_on})

    async def _loaded(self, kind: str) -> ChannelKind:
        try:
            return await asyncio.to_thread(load_kind, kind)
        except KindUnusable as error:
            if kind in known_kinds():
                raise Refused(str(error)) from error
            raise NotFound(str(error)) from error

    async def _entries(self) -> Mapping[str, Mapping[str, Any]]:
        try:
            found = (await asyncio.to_thread(file_now, self._home)).values.get("channels")
        except FileError as error:
            raise Refused(str(error)) from error
        return found if isinstance(found, dict) else {}

    async def _entry(self, name: str) -> Mapping[str, Any]:
        entry = (await self._entries()).get(name)
        if entry is None or name not in self._config.current.channels:
            self._refuse_unknown(name)
        return entry

    def _refuse_unknown(self, name: str) -> NoReturn:
        there = ", ".join(self._config.current.channels) or "none"
        raise NotFound(f"there is no channel {name!r} in config.yaml; there are: {there}")

    async def _trial(self, kind: ChannelKind, name: str, changes: Changes) -> wire.ChannelTrial:
        if not kind.has_trial:
            raise Refused(
                f"a login of the kind {kind.name} cannot be tried alone; add the channel and look at its state"
            )
        on = {**changes, ("channels", name, "enabled"): True} if ("channels", name) not in changes else changes
        config = await asyncio.to_thread(self._config_with, name, on)
        settings = config.channels[name].settings
        hide = hiding(secrets_in(settings))
        try:
            async with asyncio.timeout(TRIAL_S):
                found = await kind.trial(settings)
        except EthosError as error:
            return _failed(hide(str(error)))
        except TimeoutError:
            return _failed(f"the platform did not answer within {TRIAL_S:g} s; try it again")
        except Exception as error:  # noqa: BLE001 (a third party's package may raise anything)
            told = hide("".join(traceback.format_exception(error)))
            _log.error("the trial of a login of the kind %s failed: %s", kind.name, told)
            return _failed(f"the package {kind.module.__name__} is faulty ({type(error).__name__}); see the log")
        return _trial(found, hide)

    def _config_with(self, name: str, changes: Changes) -> Config:
        """The configuration with changes that are not written; blocks.

        Raises:
            Malformed: it could not be used.
            Refused: the file cannot be read, or changed so.
        """
        try:
            proposal = propose(self._home, changes, is_elsewhere=not self._is_running())
            path = self._home / CONFIG_NAME
            found = check(path, home=self._home, data=proposal.after, unwritten=proposal.kept)
        except (FileError, CannotSplice) as error:
            raise Refused(self._hide(str(error))) from error
        self._refuse_problems(name, [(problem.path, problem.text) for problem in proposal.problems])
        if found.loaded is None:
            raise Refused(f"config.yaml cannot be used as it is: {self._hide('; '.join(found.problems))}")
        return found.loaded.config

    def _refuse_problems(self, name: str, problems: Sequence[tuple[str, str]]) -> None:
        """Refuse a change that the configuration does not take, with the problem of each of the channel's keys."""
        if not problems:
            return
        inside = f"channels.{name}."
        of_keys = {
            KEYS_BELOW + path.removeprefix(inside): self._hide(text)
            for path, text in problems
            if path.startswith(inside)
        }
        lines = [
            self._hide(text if path == inside.rstrip(".") else f"{path.removeprefix(inside)}: {text}")
            for path, text in problems
        ]
        raise Malformed("\n".join(lines), of_keys)

    async def _write(self, name: str, changes: Changes) -> wire.ChannelChange:
        if changes:
            await asyncio.to_thread(self._check_change, name, changes)
        written = await self._writing.write(changes)
        notes = tuple(self._hide(note) for note in written.notes)
        return wire.ChannelChange(channel=name, is_in_use=written.is_in_use, notes=notes)

    def _check_change(self, name: str, changes: Changes) -> None:
        try:
            proposal = propose(self._home, changes, is_elsewhere=not self._is_running())
        except (FileError, CannotSplice) as error:
            raise Refused(self._hide(str(error))) from error
        self._refuse_problems(name, [(problem.path, problem.text) for problem in proposal.problems])

    async def _drop(self, caller: Caller, name: str) -> int:
        queues: tuple[Queue, ...] = ("inbox", "outbox")
        return sum([await self._drop_from(caller, queue, name) for queue in queues])

    async def _drop_from(self, caller: Caller, queue: Queue, name: str) -> int:
        dropped, before = 0, None
        while rows := await self._deliveries.list(caller, queue, channel=name, limit=_PAGE, before=before):
            for row in rows:
                try:
                    await self._deliveries.drop(caller, queue, row.id)
                except (Refused, NotFound):  # it is being worked on, or has ended meanwhile
                    continue
                dropped += 1
            before = (round(rows[-1].begun_at.timestamp() * 1000), rows[-1].id)
        return dropped


# ---- from and to the wire -------------------------------------------------------------------------------------------


def _kind(name: str, setup: KindSetup | None) -> wire.ChannelKind:
    is_there = is_installed(name) if "." not in name else importlib.util.find_spec(name.partition(".")[0]) is not None
    return wire.ChannelKind(
        kind=name,
        title=name if setup is None else setup.content.title,
        summary="" if setup is None else setup.content.summary,
        install=None if is_there else how_to_install(name).strip("`"),
    )


def _detail(kind: wire.ChannelKind, setup: KindSetup | None, loaded: ChannelKind | None) -> wire.ChannelKindDetail:
    steps = () if setup is None else setup.content.steps
    keys = () if loaded is None else keys_of(loaded.config, () if setup is None else setup.content.keys)
    return wire.ChannelKindDetail(
        **kind.model_dump(by_alias=False),
        can_try=loaded is not None and loaded.has_trial,
        access_default=ACCESS_DEFAULT if loaded is None else loaded.access_default,
        keys=tuple(
            wire.ChannelKey(**{name: getattr(key, name) for name in wire.ChannelKey.model_fields}) for key in keys
        ),
        steps=tuple(
            wire.ChannelStep(
                title=step.title,
                text=step.text,
                picture=step.picture,
                shows=step.shows,
                copied=setup.text_of(step.copied) if setup is not None and step.copied is not None else None,
                gives=step.gives,
            )
            for step in steps
        ),
        then=() if setup is None else setup.content.then,
    )


def _secret_names(kind: str) -> frozenset[str]:
    """The secret keys of a kind; all keys where it cannot be loaded."""
    try:
        return secret_names(keys_of(load_kind(kind).config, ()))
    except KindUnusable:
        return frozenset({"*"})


def _channel(name: str, channel: ChannelConfig, health: Health) -> wire.Channel:
    now = next((one for one in health.channels if one.name == name), None)
    waiting = {
        queue: sum(
            row.messages
            for row in health.queues
            if (row.queue, row.channel) == (queue, name) and row.state not in _SETTLED
        )
        for queue in ("inbox", "outbox")
    }
    return wire.Channel(
        name=name,
        kind=channel.kind,
        state="paused" if not channel.enabled else "stopped" if now is None else now.state,
        since=None if now is None else now.since,
        error=None if now is None else now.error,
        access=channel.access,
        waiting_in=waiting["inbox"],
        waiting_out=waiting["outbox"],
    )


def _shown(value: Any, key: str, secret: frozenset[str]) -> Any:
    """A value of the file as it may be seen."""
    if isinstance(value, dict) and not is_reference(value):
        return {inner: _shown(one, f"{key}.{inner}", secret) for inner, one in value.items()}
    is_secret = key in secret or ("*" in secret and key not in ChannelConfig.model_fields)
    return KEPT if is_secret and not is_reference(value) else value


def _entry(kind: ChannelKind, name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """A whole channel for the file; its secrets go into files."""
    secret = secret_names(keys_of(kind.config, ()))
    given = {key: value for key, value in _given(settings).items() if key != "kind"}
    return {"kind": name, **{key: _sealed(value, key, secret) for key, value in given.items()}}


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What is not None, in sections too; a section in which nothing is given is left out."""
    made = {key: _given(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    return {key: value for key, value in made.items() if value is not None and value != {}}


def _changed_keys(
    kind: ChannelKind, channel: str, settings: Mapping[str, Any], entry: Mapping[str, Any]
) -> dict[KeyPath, Any]:
    """The keys that are to be different from the entry, each by itself, so that all others stay as they stand."""
    secret = secret_names(keys_of(kind.config, ()))
    given = {key: value for key, value in settings.items() if key != "kind"}
    return dict(_differing(given, entry, ("channels", channel), "", secret))


def _differing(
    given: Mapping[str, Any], there: Mapping[str, Any], path: KeyPath, section: str, secret: frozenset[str]
) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in given.items():
        now = there.get(key)
        if isinstance(value, Mapping) and not is_reference(value) and isinstance(now, Mapping):
            if all(inner is None for inner in value.values()):
                yield (*path, key), REMOVED
            else:
                yield from _differing(value, now, (*path, key), f"{section}{key}.", secret)
        elif isinstance(value, Mapping) and not is_reference(value):
            if wanted := {inner: one for inner, one in value.items() if one is not None}:
                yield (*path, key), _sealed(wanted, section + key, secret)
        elif value is None:
            if key in there:
                yield (*path, key), REMOVED
        elif value not in (KEPT, now):
            yield (*path, key), _sealed(value, section + key, secret)


def _sealed(value: Any, key: str, secret: frozenset[str]) -> Any:
    if isinstance(value, Mapping) and not is_reference(value):
        return {inner: _sealed(one, f"{key}.{inner}", secret) for inner, one in value.items()}
    return Secret(value) if key in secret and isinstance(value, str) and not is_reference(value) else value


def _trial(found: Trial, hide: Callable[[str], str]) -> wire.ChannelTrial:
    return wire.ChannelTrial(
        is_taken=True,
        account=hide(found.account),
        address=found.address and hide(found.address),
        problems=tuple(map(hide, found.problems)),
        hints=tuple(map(hide, found.hints)),
    )


def _failed(problem: str) -> wire.ChannelTrial:
    return wire.ChannelTrial(is_taken=False, account=None, address=None, problems=(problem,), hints=())
