"""Errors for people, and exit codes for scripts (the numbers of sysexits.h)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import (
    AdapterError,
    ConfigError,
    DataDirectoryLocked,
    EthosError,
    ForeignSecret,
    LockTimeout,
    MemoryUnavailable,
    SchemaTooNew,
    StoreMoved,
    StoreUnavailable,
)

EXIT_ERROR = 1
EXIT_UNAVAILABLE = 69
EXIT_TEMPORARY = 75
EXIT_CONFIG = 78


class GatewaySilent(EthosError):
    """A gateway runs, and does not answer a command."""


_CODES: tuple[tuple[type[EthosError], int], ...] = (
    (ConfigError, EXIT_CONFIG),
    (DataDirectoryLocked, EXIT_TEMPORARY),
    (GatewaySilent, EXIT_TEMPORARY),
    (LockTimeout, EXIT_TEMPORARY),
    (StoreUnavailable, EXIT_UNAVAILABLE),
    (MemoryUnavailable, EXIT_UNAVAILABLE),
    (SchemaTooNew, EXIT_CONFIG),
    (StoreMoved, EXIT_CONFIG),
    (ForeignSecret, EXIT_CONFIG),
    (AdapterError, EXIT_UNAVAILABLE),
)
_CODES_OF_PROBLEMS = {
    "locked": EXIT_TEMPORARY,
    "store-unavailable": EXIT_UNAVAILABLE,
    "memory-unavailable": EXIT_UNAVAILABLE,
}
"""By the kind of a problem document, which is how such an error comes back from the API."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn an error on purpose into one line on standard error and an exit code; let faults of ours show."""
    try:
        yield
    except EthosError as error:
        fail(*_told(error))
    except ValueError as error:
        if not hasattr(error, "errors"):  # of pydantic, which is not loaded for this: a value that the API cannot take
            raise
        from gateway.sdk.models.schema import said_of  # which the value has loaded already

        fail("; ".join(f"{'.'.join(map(str, one['loc']))}: {said_of(one)}" for one in error.errors()), EXIT_ERROR)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            _leave_quietly()
        what = error.strerror or str(error)
        fail(f"{error.filename}: {what}" if error.filename else what, EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(130)


def _told(error: EthosError) -> tuple[str, int]:
    """What to say, and the exit code. A service's error says and means the same when it came through the API."""
    from gateway.sdk import errors as sdk  # it takes a tenth of a second to load, and most commands meet no error

    if not isinstance(error, sdk.APIError):
        return str(error), next((code for kind, code in _CODES if isinstance(error, kind)), EXIT_ERROR)
    if isinstance(error, sdk.ServiceUnavailableError):
        return str(error), _CODES_OF_PROBLEMS.get(error.kind, EXIT_ERROR)
    is_for_now = error.is_retryable or isinstance(error, sdk.VersionConflictError)
    return str(error), EXIT_TEMPORARY if is_for_now else EXIT_ERROR


def fail(message: str, code: int = EXIT_ERROR) -> None:
    """Say what is wrong, and end."""
    sys.stderr.write("".join(f"ethos: {line}\n" for line in message.splitlines()))
    sys.exit(code)


def _leave_quietly() -> None:
    """The reader of our output has gone, as with `| head`; that is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
