"""Addresses of servers in the configuration: checked, and shown without their password."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import SecretStr


def checked(url: SecretStr, schemes: tuple[str, ...], example: str) -> SecretStr:
    """The address, if it has one of the schemes and a host.

    Raises:
        ValueError: it has not; the text does not show it.
    """
    try:
        parts = urlsplit(url.get_secret_value().strip())
        is_good = parts.scheme in schemes and (bool(parts.hostname) or bool(parts.path)) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError(
            f"not an address with {' or '.join(f'{one}://' for one in schemes)}; expected such as {example}"
        )
    return SecretStr(url.get_secret_value().strip())


def shown(url: str) -> str:
    """The address for people: no user, no password, no parameters."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(SplitResult(parts.scheme, host, parts.path, "", ""))
