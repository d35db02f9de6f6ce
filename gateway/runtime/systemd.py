"""Tell the service manager how we are: systemd's notify protocol (sd_notify(3), systemd.service(5)).

One datagram of text to the socket that `NOTIFY_SOCKET` names. The libraries for it are either not kept any more
(sdnotify, since 2017) or need libsystemd and a compiler; this is all there is to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from gateway.errors import StoreError

_STATUS_S = 60.0  # how often a status is told where no watchdog asks
_log = structlog.get_logger(__name__)


class Watched(Protocol):
    """What is told of; see `app.Gateway`."""

    @property
    def is_serving(self) -> asyncio.Event:
        """Set once messages are taken."""

    async def prove_alive(self) -> None:
        """Return once the store has answered, if only with an error."""

    def summary(self) -> str:
        """One line for people on how it is."""


class ServiceManager:
    """Sends states to the service manager that started us; does nothing where there is none."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, is_ending: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_ending` says at the end whether the process ends, or begins again in place."""
        self._is_ending = is_ending
        environment = os.environ if environment is None else environment
        name = environment.get("NOTIFY_SOCKET", "")
        # A name that begins with `@` is in the abstract namespace, unix(7); others must be absolute.
        self._address = "\0" + name[1:] if name.startswith("@") else name if name.startswith("/") else None
        self.watchdog_s = _watchdog_s(environment) if self._address else None
        self._has_failed = False

    @property
    def is_there(self) -> bool:
        """Whether a service manager started us."""
        return self._address is not None

    def tell(self, **states: str | int) -> None:
        """Send assignments, such as `READY=1`, in one datagram. What cannot be sent is logged, once."""
        if self._address is None:
            return
        text = "".join(f"{name}={value}\n" for name, value in states.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
                sending.setblocking(False)  # noqa: FBT003 (the only argument it takes)
                sending.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _log.warning("service_manager_not_told", error=str(error))
            self._has_failed = True
        else:
            self._has_failed = False

    def reloading(self) -> None:
        """The configuration is being read again; `READY=1` follows."""
        self.tell(RELOADING=1, MONOTONIC_USEC=time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)

    async def watch(self, gateway: Watched, stop: asyncio.Event) -> None:
        """Tell of the start, then that we live and how we are, and of the end; until cancelled.

        A sign of life is given from the event loop, and only after the store's writer has answered. A disk that is full
        is such an answer: a restart would not help, and the status says so. What is no answer that we know is logged,
        and is no sign of life: a fault that lasts ends in a restart, and one that passes does not.
        """
        if not self.is_there:
            return
        await gateway.is_serving.wait()
        self.tell(READY=1, STATUS=gateway.summary())
        every_s = self.watchdog_s / 2 if self.watchdog_s else _STATUS_S
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await stop.wait()
            if not stop.is_set():
                await self._sign_of_life(gateway)
        if self._is_ending():
            self.tell(STOPPING=1, STATUS="ending what runs")
        else:  # after STOPPING, the manager would wait for the end of the process, and then kill it
            self.reloading()
            self.tell(STATUS="restarting")
        while True:  # the end may take longer than the watchdog's patience
            await asyncio.sleep(every_s)
            await self._sign_of_life(gateway)

    async def _sign_of_life(self, gateway: Watched) -> None:
        try:
            with contextlib.suppress(StoreError):
                await gateway.prove_alive()
            status = gateway.summary()
        except Exception:  # noqa: BLE001 (else the watch would end with it, and no log would say why we are restarted)
            _log.exception("no_sign_of_life")
            return
        if self.watchdog_s:
            self.tell(WATCHDOG=1, STATUS=status)
        else:
            self.tell(STATUS=status)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """How long the manager waits for a sign of life; None where it does not, or means another process."""
    try:
        wait_us = int(environment.get("WATCHDOG_USEC", "0"))
        pid = int(environment.get("WATCHDOG_PID", str(os.getpid())))
    except ValueError:
        return None
    return wait_us / 1_000_000 if wait_us > 0 and pid == os.getpid() else None
