"""What values of the configuration look like, whatever key they stand at."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, StringConstraints

from gateway.domain.root_secret import read_root_secret

_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_HOST = re.compile(r"[A-Za-z0-9._:\[\]%-]+")


def no_truth(value: object) -> object:
    """Python takes `true` for 1; a person who writes `port: true` means something else."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number; expected a number")  # noqa: TRY004 (pydantic's way)
    return value


def off_worded(value: object) -> object:
    """YAML takes a bare `off` for no."""
    return "off" if value is False else value


def _id_text(value: object) -> object:
    """Platforms number people; a number needs no quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise ValueError("not a host; expected a name or an address, such as 127.0.0.1")
    return value


def _web_address(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and " " not in value
    except ValueError:
        is_good, parts = False, urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address holds a password; expected it without, and the key in `api_key`")
    if not is_good:
        raise ValueError("not a web address; expected one such as http://127.0.0.1:11434/v1")
    return value


def time_of_day(value: str) -> str:
    """The time, as 03:00."""
    if not _TIME_OF_DAY.fullmatch(value):
        raise ValueError("not a time of day; expected one such as 03:00")
    return value


def zone_of(name: str) -> tzinfo:
    """The time zone; UTC is there on every machine.

    Raises:
        ValueError: there is no such zone.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            "no time zone of this machine; expected a name such as Europe/Berlin or UTC (`pip install tzdata` brings "
            "all of them)"
        ) from error


def zone_name(value: str) -> str:
    """The name of a time zone that is there."""
    zone_of(value)
    return value


def _certificates(path: Path) -> Path:
    path = path.expanduser()
    try:
        is_pem = path.is_absolute() and b"-----BEGIN CERTIFICATE-----" in path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); expected a file with certificates") from None
    if not is_pem:
        raise ValueError("expected the whole path of a file with certificates in PEM")
    return path


def _root_secret(value: SecretStr) -> SecretStr:
    read_root_secret(value.get_secret_value())
    return value


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Count = Annotated[int, BeforeValidator(no_truth)]
Seconds = Annotated[float, BeforeValidator(no_truth), Field(gt=0, le=86_400)]
Usd = Annotated[float, BeforeValidator(no_truth), Field(ge=0)]
Share = Annotated[float, BeforeValidator(no_truth), Field(ge=0, le=1)]
Days = Annotated[float, BeforeValidator(no_truth), Field(gt=0, le=36_500)]
AccountId = Annotated[Text, BeforeValidator(_id_text)]
Host = Annotated[Text, AfterValidator(_host)]
WebAddress = Annotated[Text, AfterValidator(_web_address)]
CaFile = Annotated[Path, AfterValidator(_certificates)]
RootSecret = Annotated[SecretStr, AfterValidator(_root_secret)]


class Section(BaseModel):
    """A part of the configuration; never changed after it was read."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True, validate_default=True
    )
