"""Addresses of servers in the configuration: checked, and shown without their password."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import SecretStr

_SEPARATOR = re.compile(r"[@/?#]")


def checked(url: SecretStr, schemes: tuple[str, ...], example: str) -> SecretStr:
    """The address, if it has one of the schemes and a host.

    Raises:
        ValueError: it has not; the text does not show it.
    """
    text = url.get_secret_value().strip()
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in schemes and (bool(parts.hostname) or bool(parts.path)) and parts.port != 0
    except ValueError:
        is_good = False
    if _SEPARATOR.search(text.partition("://")[2].rpartition("@")[0]):
        raise ValueError(
            "a character before the host is not escaped; expected %40 for @, %2F for /, %3F for ?, %23 for #"
        )
    if not is_good:
        expected = " or ".join(f"{one}://" for one in schemes)
        raise ValueError(f"not an address with {expected}; expected such as {example}")
    return SecretStr(text)


def shown(url: str) -> str:
    """The address for people: no user, no password, no parameters."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(SplitResult(parts.scheme, host, parts.path, "", ""))
