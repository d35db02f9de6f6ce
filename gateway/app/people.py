"""Where it is kept who is who, who was erased and who tried what: files and memory of one machine, or tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.domain.tombstones import Tombstones
from gateway.ops.privacy.tombstones import TombstoneFile
from gateway.people.identity import IdentityMap
from gateway.people.identity.identities import Identities
from gateway.people.tries import (
    ErasureCodes,
    ErasureCodesInMemory,
    OwnerTries,
    OwnerTriesInMemory,
    SignInFailures,
    SignInFailuresInMemory,
)
from gateway.store.accounts import SqlAccounts
from gateway.store.engine import Engine
from gateway.store.tombstones import SqlTombstones
from gateway.store.tries import SqlErasureCodes, SqlOwnerTries, SqlSignInFailures


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleParts:
    """What differs between one machine and many workers."""

    identities: Identities
    tombstones: Tombstones
    sign_in_failures: SignInFailures
    owner_tries: OwnerTries
    erasure_codes: ErasureCodes


def people_parts(home: Path, engine: Engine) -> PeopleParts:
    """Those of the database where others use it, too; else those of the data directory and of this process."""
    if engine.dialect.is_shared:
        return PeopleParts(
            identities=SqlAccounts(engine.of("accounts")),
            tombstones=SqlTombstones(engine.of("tombstones")),
            sign_in_failures=SqlSignInFailures(engine.of("sign_in_failures")),
            owner_tries=SqlOwnerTries(engine.of("owner_tries")),
            erasure_codes=SqlErasureCodes(engine.of("erasure_codes")),
        )
    return PeopleParts(
        identities=IdentityMap(home / "users" / "identity-map.json"),
        tombstones=TombstoneFile(home),
        sign_in_failures=SignInFailuresInMemory(),
        owner_tries=OwnerTriesInMemory(),
        erasure_codes=ErasureCodesInMemory(),
    )
