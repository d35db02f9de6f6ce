"""`client.personalities`: who answers."""

from __future__ import annotations

from gateway.sdk.models.personalities import CreatePersonality, Personality, PersonalityFiles, UpdatePersonality
from gateway.sdk.models.schema import Page
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, operation


class Personalities(Namespace[S]):
    """The roles of the agent. Scopes: `personalities:read`, `personalities:write`."""

    @operation
    async def list(self) -> tuple[Personality, ...]:
        """All of them, built-in ones first, those that cannot be used with the reason."""
        return (await self.courier.ask(Request("GET", "/personalities", Page[Personality]))).items

    @operation
    async def get(self, personality: str) -> PersonalityFiles:
        """One, with the texts of its files; `NotFound` where there is none."""
        place = {"personality": personality}
        return await self.courier.ask(Request("GET", "/personalities/{personality}", PersonalityFiles, place=place))

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
        """Make one with this id; it can be chosen at once.

        Args:
            copy_of: it begins with that one's prompt and settings.

        Raises:
            NotFound: there is none to copy.
            NotPossible: there is one of that id.
        """
        body = CreatePersonality(id=personality, name=name, description=description, copy_of=copy_of)
        return await self.courier.ask(
            Request("POST", "/personalities", PersonalityFiles, body=body, idempotency_key=idempotency_key)
        )

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
            NotFound: there is no such personality.
            NotPossible: it is not `expected_version` any more.
            Invalid: the settings cannot be used.
        """
        body = UpdatePersonality(expected_version=expected_version, prompt=prompt, settings=settings)
        return await self.courier.ask(
            Request(
                "PATCH",
                "/personalities/{personality}",
                PersonalityFiles,
                place={"personality": personality},
                body=body,
                idempotency_key=idempotency_key,
            )
        )
