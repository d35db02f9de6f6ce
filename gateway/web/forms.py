"""Forms that browsers send: read whole but bounded, and only believed with the token that the page was given.

The token is bound to the session's cookie. Host and Origin are checked before (`auth.Gate`); this is the second lock.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

# A memory file of half a MiB in a script of three bytes a character, each written as `%XX`, and its form around it.
MAX_FORM_BYTES = 4 * 1024 * 1024
MAX_FIELDS = 200
FORM_TYPE = "application/x-www-form-urlencoded"
TOKEN_FIELD = "form_token"  # noqa: S105 (a name)
CONFIRMED_FIELD = "confirmed"


def form_key(token: str) -> bytes:
    """The key of all that is signed for forms; a new token of the operator ends them too."""
    return hmac.digest(token.encode(), b"ethos web forms", "sha256")


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form, in their order; a name may come more than once."""

    fields: Sequence[tuple[str, str]] = ()

    def get(self, name: str, default: str = "") -> str:
        """The last value of that name, with the line ends of files; browsers send CR LF (HTML standard, 4.10.21.4)."""
        return self.all(name)[-1] if self.has(name) else default

    def all(self, name: str) -> list[str]:
        """Every value of that name."""
        return [value.replace("\r\n", "\n") for key, value in self.fields if key == name]

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return any(key == name for key, _ in self.fields)

    @property
    def is_confirmed(self) -> bool:
        """Whether it was asked and answered with yes."""
        return self.get(CONFIRMED_FIELD) == "yes"

    def without(self, *names: str) -> Form:
        """The other fields."""
        return Form([(key, value) for key, value in self.fields if key not in names])


async def read_form(request: Request, *, max_bytes: int = MAX_FORM_BYTES) -> Form:
    """The fields of an urlencoded form.

    Raises:
        HTTPException: 413, it is larger than that; 415, it is something else; 400, it makes no sense.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise HTTPException(415, f"Send the form as {FORM_TYPE}.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise HTTPException(413, f"The form is larger than {max_bytes // 1024} KiB.")
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", encoding="utf-8", max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        raise HTTPException(400, "The form cannot be read.") from error
    return Form(fields)


class FormTokens:
    """Makes and knows the tokens of forms.

    Args:
        key: a secret of the gateway.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, cookie: str) -> str:
        """For the forms of the session that has this cookie."""
        return hmac.digest(self._key, b"form " + cookie.encode(), "sha256").hex()

    def is_token(self, candidate: str, cookie: str) -> bool:
        """Whether it was made for that session; in constant time."""
        return bool(cookie) and hmac.compare_digest(candidate.encode(), self.token(cookie).encode())
