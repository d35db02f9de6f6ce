"""Where the gateway is, and which key to send: given, from the environment, or from a data directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from gateway.sdk.errors import AddressError, APIConnectionError

API_PATH = "/api/v1"
URL_VARIABLE = "ETHOS_URL"
KEY_VARIABLE = "ETHOS_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Of a gateway's API.

    Attributes:
        url: without a `/` at its end.
        key: an API key or the operator's token; None where the socket alone says who asks.
        socket: the gateway's Unix socket, on this machine.
    """

    url: str
    key: str | None = None
    socket: Path | None = None

    def __repr__(self) -> str:
        return f"Address(url={self.url!r})"  # the key is a secret


AddressSource = Callable[[], Address]
"""Asked before each try; raises `APIConnectionError` where no gateway runs at this moment."""


def address_source(
    base_url: str | None, api_key: str | None, home: Path | None, environment: Mapping[str, str] | None = None
) -> AddressSource:
    """Where to find the gateway.

    Args:
        home: a data directory on this machine; used only where neither `base_url` nor the environment says more.

    Raises:
        AddressError: the URL is not valid, or URL or key is missing.
    """
    environment = os.environ if environment is None else environment
    if home is None:
        base_url = base_url or environment.get(URL_VARIABLE) or None
        api_key = api_key or (environment.get(KEY_VARIABLE) or None if base_url else None)
    elif base_url or api_key:
        raise AddressError("give a base_url and an api_key, or a data directory, and not both")
    if base_url is None:
        if api_key is not None:
            raise AddressError(f"give the URL to the key, too: `Ethos(api_key=…, base_url=…)`, or {URL_VARIABLE}")
        return partial(_local_gateway, home)
    if api_key is None:
        raise AddressError(
            f"give the key to the URL, too: `Ethos(api_key=…, base_url=…)`, or {KEY_VARIABLE}; "
            f"`ethos keys create` makes one"
        )
    address = Address(url=_checked(base_url), key=_printable(api_key))
    return lambda: address


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise AddressError(f"{url} is not the address of a gateway; expected such as http://localhost:8420")
    return url.rstrip("/").removesuffix(API_PATH) + API_PATH


def _printable(key: str) -> str:
    key = key.strip()
    if not (key.isascii() and key.isprintable() and key) or " " in key:
        raise AddressError("the key has characters that no key has; give it as `ethos keys create` printed it")
    return key


def _local_gateway(home: Path | None) -> Address:
    """The gateway that runs on a data directory, reached through its Unix socket: the kernel says who asks.

    It is looked up for each try. What is sent goes to no other program: the socket is ours, in a directory of ours.
    """
    from gateway.files.home import data_directory  # noqa: PLC0415 (only for a gateway on this machine)
    from gateway.files.running_gateway import running_gateway  # noqa: PLC0415 (as above)
    from gateway.files.unix_socket import SOCKET_NAME  # noqa: PLC0415 (as above)

    home = home or data_directory()
    path = home / SOCKET_NAME
    try:
        if running_gateway(home) is None:
            raise APIConnectionError(f"no gateway runs on {home}; start it with `ethos serve`")
        owner = path.lstat().st_uid
    except FileNotFoundError as error:
        raise APIConnectionError(f"the gateway on {home} is still starting, or is about to end") from error
    except OSError as error:
        raise APIConnectionError(str(error)) from error
    if owner not in (os.getuid(), 0) and os.getuid() != 0:
        raise APIConnectionError(f"{path} belongs to another user; nothing was sent")
    return Address(url=f"http://localhost{API_PATH}", socket=path)
