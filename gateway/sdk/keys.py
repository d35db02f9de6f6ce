"""`client.keys`: keys of the API."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk.models.keys import CreateKey, Key, NewKey
from gateway.sdk.models.names import Scope
from gateway.sdk.models.schema import Page
from gateway.sdk.styles import Namespace, S, operation


class Keys(Namespace[S]):
    """Keys of the API, only for the operator."""

    @operation
    async def list(self) -> tuple[Key, ...]:
        """All keys, the newest first, also those that were revoked; never their texts."""
        return (await self.sender.get("/keys", Page[Key])).items

    @operation
    async def create(
        self, name: str, scopes: Sequence[Scope], *, user: str | None = None, idempotency_key: str | None = None
    ) -> NewKey:
        """Make a key with these scopes, whose text is in the answer only. With `user` it sees that person only."""
        body = CreateKey(name=name, scopes=tuple(scopes), user=user)
        return await self.sender.write("POST", "/keys", NewKey, idempotency_key, body)

    @operation
    async def revoke(self, key: str, *, idempotency_key: str | None = None) -> Key:
        """End a key at once, by its id or name; `NotFoundError` where none of it is in force."""
        return await self.sender.write("POST", "/keys/{key}/revoke", Key, idempotency_key, key=key)
