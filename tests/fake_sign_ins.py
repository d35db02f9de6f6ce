"""Sign-ins without a database; held to the suite of the real ones in `tests/gateway/web/test_sign_ins.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from gateway.people.sign_ins import SignIn


class FakeSignIns:
    def __init__(self) -> None:
        self._kept: dict[str, SignIn] = {}

    async def add(self, sign_in: SignIn) -> None:
        self._kept[sign_in.id] = sign_in

    async def sign_in(self, sign_in_id: str) -> SignIn | None:
        return self._kept.get(sign_in_id)

    async def sign_ins(self) -> Sequence[SignIn]:
        return sorted(self._kept.values(), key=lambda one: (-one.last_seen_at.timestamp(), one.id))

    async def note_seen(self, sign_in_id: str, at: datetime) -> None:
        if sign_in_id in self._kept and self._kept[sign_in_id].last_seen_at < at:
            self._kept[sign_in_id] = replace(self._kept[sign_in_id], last_seen_at=at)

    async def end(self, sign_in_id: str) -> bool:
        return self._kept.pop(sign_in_id, None) is not None

    async def end_begun_before(self, at: datetime) -> None:
        self._kept = {key: one for key, one in self._kept.items() if one.created_at >= at}
