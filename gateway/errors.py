"""Every error that crosses a seam of the gateway.

::

    EthosError
    ├── ConfigError               the configuration cannot be used; says where and what was expected
    ├── DataDirectoryLocked       another process holds the data directory
    ├── AdapterError
    │   ├── AdapterNotReady       the platform cannot be reached now; try again
    │   └── AdapterAuthFailed     the platform refused our credentials; an operator must act
    ├── SendError                 how certain it is that nothing was delivered:
    │   ├── TransientSendError    not delivered; try again, after `retry_after_s` where given
    │   ├── UncertainSendError    perhaps delivered
    │   └── PermanentSendError    not delivered and never will be
    ├── ModelError
    │   ├── ModelUnavailable      no answer now (down, overloaded, over quota, key refused); park the message
    │   │   └── BudgetExhausted   our own budget of the day has no room for the call
    │   └── ModelRefused          this request will never be answered (too long, blocked, malformed)
    ├── StoreError
    │   ├── StoreUnavailable      disk full, I/O error: nothing was committed; try again when it is mended
    │   ├── SchemaTooNew          the database was written by a newer program
    │   ├── StoreMoved            the database went elsewhere, or has not yet all that is copied into it
    │   └── ClaimLost             somebody else holds, or has finished, the row
    ├── FileError                 a file that people edit, or its place, cannot be used
    │   ├── LockTimeout           the lock's holder did not let go in time
    │   └── UnsafePath            a link leads out of the data directory, or the file system cannot lock
    ├── IdentityMapBroken         identity-map.json cannot be read and there is no good copy of it
    ├── InvalidAccount            an account is not `kind:id`
    ├── BackupError               a backup cannot be made, read or put in place; nothing was changed
    ├── PersonalityError          no such personality, or its files are not valid
    ├── MemoryUnavailable         a memory that lies elsewhere cannot be used now; try again
    ├── NotOffered                the memory that was chosen cannot do this; says so for people
    └── MemoryStoreError
        ├── InvalidId             a personality or user id is not `[A-Za-z0-9_-]{1,64}`
        ├── MemoryConflict        the document changed since it was read; carries both texts
        ├── NoSuchEntry           no such change in the history, or its texts are not known any more
        └── TraceError            what was asked of the trace memory makes no sense; says what would

A message of ours names what to do next. No message holds a secret.
"""

from __future__ import annotations

import time
from typing import Literal


class EthosError(Exception):
    """Anything that the gateway raises on purpose."""


class ConfigError(EthosError):
    """The configuration cannot be used.

    Attributes:
        problems: one line for people each, `file:line:column: key: what is wrong, what was expected`.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class DataDirectoryLocked(EthosError):
    """Another process runs on this data directory.

    Attributes:
        pid: the holder's process id, None where it could not be read.
    """

    def __init__(self, path: str, pid: int | None) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{holder} is running on {path}. Stop it first, or choose another data directory with ETHOS_HOME."
        )
        self.pid = pid


class BackupError(EthosError):
    """A backup cannot be made, cannot be trusted, or cannot be put in place; what was there is as it was."""


class AdapterError(EthosError):
    """A channel could not be connected."""


class AdapterNotReady(AdapterError):
    """The platform cannot be reached now.

    Attributes:
        retry_after_s: when the platform asks us to come back, None where it did not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AdapterAuthFailed(AdapterError):
    """The platform refused our credentials. Trying again is of no use until an operator changes them."""


class SendError(EthosError):
    """A message could not be sent, or we do not know whether it was."""


class TransientSendError(SendError):
    """Certainly not delivered; the same message may be sent again.

    Attributes:
        retry_after_s: the platform's own word on when, None where it gave none.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UncertainSendError(SendError):
    """The line broke, or time ran out, after the platform may have taken the message."""


class PermanentSendError(SendError):
    """Certainly not delivered, and the same message never will be."""


class ModelError(EthosError):
    """The model gave no usable answer.

    Attributes:
        about: the key of its configuration that is most likely wrong, where it is one.
    """

    about: Literal["model", "base_url", "api_key"] | None = None


class ModelUnavailable(ModelError):
    """No answer now; the same request may succeed later.

    Attributes:
        retry_after_s: the provider's own word on when, None where it gave none.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BudgetExhausted(ModelUnavailable):
    """A budget of the day has no room for the call; it was not made.

    Attributes:
        budget: which one: `user`, `personality` or `gateway`.
        day_turns_in_s: until there is a new one.
        denied_s: when that was, by the monotonic clock.
    """

    def __init__(self, message: str, *, budget: str, day_turns_in_s: float, retry_after_s: float) -> None:
        super().__init__(message, retry_after_s)
        self.budget = budget
        self.day_turns_in_s = day_turns_in_s
        self.denied_s = time.monotonic()


class ModelRefused(ModelError):
    """The provider understood the request and will never answer it."""


class StoreError(EthosError):
    """The store did not do what was asked; nothing of it was committed."""


class StoreUnavailable(StoreError):
    """The disk is full or broken. Nothing was committed; the same call may succeed once it is mended."""


class SchemaTooNew(StoreError):
    """The database was written by a newer program than this one."""


class StoreMoved(StoreError):
    """Nothing may be served from this database: it went elsewhere, or a copy into it is not whole."""


class ForeignSecret(StoreError):
    """This worker has no secret, or another one than the workers that have used the database."""


class ClaimLost(StoreError):
    """The row is no longer claimed by the caller."""


class PersonChanged(StoreError):
    """Who was answered is another person by now, or is being erased; nothing was committed."""


class SessionBusy(EthosError):
    """Another worker's turn is in the session."""


class FileError(EthosError):
    """A file that people edit, or the place it lies in, cannot be used."""


class LockTimeout(FileError):
    """A file's lock was not free in time.

    Attributes:
        holder: what is known of the process that holds it, for people.
    """

    def __init__(self, path: str, waited_s: float, holder: str | None) -> None:
        super().__init__(f"{path} is locked by {holder or 'an unknown process'}; gave up after {waited_s:g} s")
        self.holder = holder


class UnsafePath(FileError):
    """A symbolic link leads out of the data directory, or the file system cannot hold locks."""


class IdentityMapBroken(EthosError):
    """identity-map.json cannot be read, and no good copy of it is left to serve instead."""


class InvalidAccount(EthosError):
    """A platform account that cannot stand in the identity map; an adapter made it wrongly."""


class PersonalityError(EthosError):
    """There is no such personality, or its files are not valid."""


class MemoryUnavailable(EthosError):
    """A memory that lies elsewhere cannot be used now; the same call may succeed later.

    The text is for those who run the gateway: it names the server, and perhaps the document of a person.
    """

    FOR_PEOPLE = "the memory cannot be used just now; try again later"
    """What all others are told."""


class NotOffered(EthosError):
    """What was asked is not possible with the memory that was chosen; the text is one sentence for people."""


class MemoryStoreError(EthosError):
    """A memory could not be read or written."""


class InvalidId(MemoryStoreError):
    """An id that may not become part of a path.

    Attributes:
        value: the id as it was given.
    """

    def __init__(self, kind: str, value: str) -> None:
        super().__init__(f"{kind} id {value!r} is not valid: use 1 to 64 of the characters A-Z a-z 0-9 _ -")
        self.value = value


class MemoryConflict(MemoryStoreError):
    """The document changed since it was read.

    Attributes:
        proposed: the text that the caller wanted to write.
        current: the text that is there now.
        current_version: SHA-256 of the bytes that are there now, in hex.
    """

    def __init__(self, *, proposed: str, current: str, current_version: str) -> None:
        super().__init__("the document changed since it was read; compare both texts and write again")
        self.proposed = proposed
        self.current = current
        self.current_version = current_version


class NoSuchEntry(MemoryStoreError):
    """There is no such change in the history of this document, or its texts are not known any more."""


class TraceError(MemoryStoreError):
    """What was asked of the trace memory makes no sense; the message says what would."""
