"""Why a PostgreSQL server cannot be used, and what to do: for the memory and for the store."""

from __future__ import annotations

import re
from collections.abc import Sequence

_AWAY = "look at `url`, and whether the server runs"
_DISK = "it has no room left; make room on its disk"
# What a code (https://www.postgresql.org/docs/current/errcodes-appendix.html) means, by its beginning.
_CODES = (
    ("25006", "it is read-only; give the address of the primary, or allow this user to write"),
    ("26000", "a pooler mixes up prepared statements; use pgbouncer 1.21 or newer, or `prepared_statements: false`"),
    ("42P05", "a pooler mixes up prepared statements; use pgbouncer 1.21 or newer, or `prepared_statements: false`"),
    ("42501", "its user may not make or change tables; `GRANT CREATE ON SCHEMA public`, or make it the owner"),
    ("53100", _DISK),
    ("53", "it has too much to do; raise `max_connections` there, or lower `connections`"),
    ("55P03", "somebody else holds a lock for too long; look for transactions that stay open"),
    ("57014", f"it does not answer in time; {_AWAY}"),
)
# What a text of libpq means; it has no code, and comes in the server's language.
_TEXTS = (
    (r"password authentication failed|no password supplied", "it refuses the user name or the password; see `url`"),
    (r"no pg_hba.conf entry", "its pg_hba.conf does not let us in from here; add a line for this user and address"),
    (r"certificate verify failed|server certificate|root certificate file",
     "its certificate is not trusted; name its authority's in `ca_file`, and the name in it in `url`"),
    (r"server does not support SSL", "it speaks no TLS; leave `sslmode` and `ca_file` out, or switch TLS on there"),
    (r"invalid response to SSL|expected authentication request|lost synchronization|received invalid",
     "what answers there is no PostgreSQL; look at `url`"),
)  # fmt: skip
_PASSING_TEXTS = (
    (r"No space left|could not (extend|write)", _DISK),
    (r"timeout", f"it does not answer in time; {_AWAY}"),
)


def reason_of(error: Exception, also: Sequence[tuple[str, str]] = ()) -> str:
    """A sentence without the server's name.

    Args:
        error: of psycopg, or an OSError.
        also: more codes by their beginning, each with what it means; asked after the common ones.
    """
    code, text = getattr(error, "sqlstate", None) or "", " ".join(str(error).split())
    for beginning, reason in (*_CODES, *also):
        if code.startswith(beginning):
            return f"{reason} ({text.partition(' LINE ')[0]})" if beginning == "42" else reason
    for pattern, reason in (*_TEXTS, *_PASSING_TEXTS):
        if re.search(pattern, text):
            return reason
    return f"{text.partition(' Is the server running')[0] or type(error).__name__}; {_AWAY}"


def is_lasting(error: Exception) -> bool:
    """Whether libpq's text names what only a person can mend, such as a wrong password."""
    text = str(error)
    return "does not exist" in text or any(re.search(pattern, text) for pattern, _ in _TEXTS)
