"""`client.personalities`: the roles of the agent."""

from __future__ import annotations

from gateway.sdk.models.personalities import CreatePersonality, Personality, PersonalityFiles, UpdatePersonality
from gateway.sdk.models.schema import Page
from gateway.sdk.styles import Namespace, S, operation

_ONE = "/personalities/{personality}"


class Personalities(Namespace[S]):
    """The roles of the agent. Scopes: `personalities:read`, `personalities:write`.

    Every operation on one raises `NotFoundError` where there is none.
    """

    @operation
    async def list(self) -> tuple[Personality, ...]:
        """All of them, built-in ones first; one whose files are not valid has a `problem`."""
        return (await self.sender.get("/personalities", Page[Personality])).items

    @operation
    async def get(self, personality: str) -> PersonalityFiles:
        """One, with the texts of its files."""
        return await self.sender.get(_ONE, PersonalityFiles, personality=personality)

    @operation
    async def create(
        self,
        personality: str,
        *,
        name: str | None = None,
        description: str = "",
        copy_of: str | None = None,
        idempotency_key: str | None = None,
    ) -> PersonalityFiles:
        """Create one with this id; it can be used at once. `ConflictError` where there is one of that id.

        Args:
            copy_of: it starts with that one's prompt and settings.
        """
        body = CreatePersonality(id=personality, name=name, description=description, copy_of=copy_of)
        return await self.sender.write("POST", "/personalities", PersonalityFiles, idempotency_key, body)

    @operation
    async def update(
        self,
        personality: str,
        expected_version: str,
        *,
        prompt: str | None = None,
        settings: str | None = None,
        idempotency_key: str | None = None,
    ) -> PersonalityFiles:
        """Replace its prompt (`SOUL.md`), its settings (`personality.yaml`) or both; what is None stays.

        Raises:
            ConflictError: it is not `expected_version` any more.
            UnprocessableEntityError: the settings are not valid.
        """
        body = UpdatePersonality(expected_version=expected_version, prompt=prompt, settings=settings)
        return await self.sender.write("PATCH", _ONE, PersonalityFiles, idempotency_key, body, personality=personality)
