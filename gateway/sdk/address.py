"""Where the gateway is, and what to show it: given, from the environment, or from a data directory on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gateway.errors import EthosError
from gateway.sdk.errors import NotReached

API_PATH = "/api/v1"
URL_VARIABLE = "ETHOS_URL"
KEY_VARIABLE = "ETHOS_API_KEY"


class NoAddress(EthosError):
    """It is not clear where the gateway is, or with which key; says what to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Of a gateway's API.

    Attributes:
        url: without a `/` at its end.
        key: an API key or the operator's token.
    """

    url: str
    key: str

    def __repr__(self) -> str:
        return f"Address(url={self.url!r})"  # the key is a secret


Whereabouts = Callable[[], Address]
"""Asked before each try; raises `NotReached` where no gateway runs at this moment."""


def whereabouts(
    url: str | None, key: str | None, home: Path | None, environment: Mapping[str, str] | None = None
) -> Whereabouts:
    """Where to find the gateway.

    Args:
        home: a data directory on this machine; looked at only where neither `url` nor the environment says more.

    Raises:
        NoAddress: what is given is no address, or a part of it is missing.
    """
    environment = os.environ if environment is None else environment
    if home is None:
        url = url or environment.get(URL_VARIABLE) or None
        key = key or (environment.get(KEY_VARIABLE) or None if url else None)
    elif url or key:
        raise NoAddress("give a url and a key, or a data directory, and not both")
    if url is None:
        if key is not None:
            raise NoAddress(f"give the url to the key, too: `Ethos(url, key)`, or {URL_VARIABLE}")
        return _Local(home)
    if key is None:
        raise NoAddress(
            f"give the key to the url, too: `Ethos(url, key)`, or {KEY_VARIABLE}; `ethos keys create` makes one"
        )
    address = Address(url=_checked(url), key=_printable(key))
    return lambda: address


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise NoAddress(f"{url} is no address of a gateway; expected such as http://localhost:8420")
    return url.rstrip("/").removesuffix(API_PATH) + API_PATH


def _printable(key: str) -> str:
    key = key.strip()
    if not (key.isascii() and key.isprintable() and key) or " " in key:
        raise NoAddress("the key has characters that no key has; give it as `ethos keys create` printed it")
    return key


class _Local:
    """The gateway that runs on a data directory, found anew for each try: it may have begun again on another port.

    Its token goes to no other program: what a gateway left behind counts only while it holds the directory's lock.
    """

    def __init__(self, home: Path | None) -> None:
        self._home = home

    def __call__(self) -> Address:
        from gateway.files.home import data_directory  # noqa: PLC0415 (only for a gateway on this machine)
        from gateway.files.running_gateway import TokenUnreadable, running_gateway, web_token  # noqa: PLC0415 (as above)

        home = data_directory() if self._home is None else self._home
        try:
            process = running_gateway(home)
            token = "" if process is None or process.url is None else web_token(home)
        except (OSError, TokenUnreadable) as error:
            raise NotReached(str(error)) from error
        if process is None:
            raise NotReached(f"no gateway runs on {home}; start it with `ethos serve`")
        if process.url is None:
            raise NotReached(f"the gateway on {home} has no web server, or has only just begun to start")
        return Address(url=_checked(process.url), key=token)
