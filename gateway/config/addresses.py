"""Addresses of servers in the configuration: checked, and shown without their password."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_SEPARATOR = re.compile(r"[@/?#]")
_ALSO_SOCKETS = ("unix", "postgresql", "postgres")


def refuse_other_schemes(url: str, schemes: tuple[str, ...], example: str) -> None:
    """An address has one of the schemes and a host, or leads to a socket of this machine.

    Raises:
        ValueError: it has not; the text does not show it.
    """
    try:
        parts = urlsplit(url)
        is_socket = parts.scheme in _ALSO_SOCKETS and bool(parts.path)
        is_good = parts.scheme in schemes and (bool(parts.hostname) or is_socket) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        expected = " or ".join(f"{one}://" for one in schemes)
        raise ValueError(f"not an address with {expected}; expected such as {example}")


def refuse_unescaped_password(url: str) -> None:
    """Else a part of the password would be taken for the host or the path, and be shown.

    Raises:
        ValueError: there is a separator before the host.
    """
    if _SEPARATOR.search(url.partition("://")[2].rpartition("@")[0]):
        raise ValueError("the user or password is not escaped; expected %40 for @, %2F for /, %3F for ? and %23 for #")


def shown(url: str) -> str:
    """The address for people: no user, no password, no parameters."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
