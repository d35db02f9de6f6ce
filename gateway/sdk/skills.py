"""`client.skills`: instructions that the agent loads when it needs them."""

from __future__ import annotations

from pathlib import Path

from gateway.sdk.models.schema import Page
from gateway.sdk.models.skills import RemovedSkill, Skill, SkillDetails, TrustSkill
from gateway.sdk.request import Request
from gateway.sdk.styles import Namespace, S, operation

_ONE = "/skills/{skill}"


class Skills(Namespace[S]):
    """Skills. Scope: `tools:read`, and no key of a person; all that changes something is the operator's only.

    Every operation on a skill raises `NotFoundError` where there is no such skill.
    """

    @operation
    async def list(self) -> tuple[Skill, ...]:
        """All of them, trusted or not."""
        return (await self.sender.get("/skills", Page[Skill])).items

    @operation
    async def get(self, skill: str, *, personality: str | None = None) -> SkillDetails:
        """One of them, with its instructions, the addresses in it, and what looks wrong."""
        return await self.sender.get(_ONE, SkillDetails, {"personality": personality}, skill=skill)

    @operation
    async def add(
        self,
        file: Path,
        *,
        personality: str | None = None,
        is_replacing: bool = False,
        pin: str | None = None,
        idempotency_key: str | None = None,
    ) -> SkillDetails:
        """Add the skill of a ZIP file; `ConflictError` where it is not taken, with the reason.

        Args:
            personality: that alone has it.
            is_replacing: in place of one that has its name.
            pin: trust it at once, if this is its pin; without, it is withheld until it is trusted.

        Raises:
            OSError: the file cannot be read.
        """
        query = {"personality": personality, "replace": is_replacing, "pin": pin}
        return await self.sender.send(
            Request("POST", "/skills", SkillDetails, query=query, upload=file, idempotency_key=idempotency_key)
        )

    @operation
    async def trust(
        self, skill: str, pin: str, *, personality: str | None = None, idempotency_key: str | None = None
    ) -> SkillDetails:
        """Let the agent have it, as it was seen; `ConflictError` where its pin is another by now."""
        body = TrustSkill(pin=pin, personality=personality)
        return await self.sender.write("POST", f"{_ONE}/trust", SkillDetails, idempotency_key, body, skill=skill)

    @operation
    async def remove(
        self, skill: str, *, personality: str | None = None, idempotency_key: str | None = None
    ) -> RemovedSkill:
        """Trust it no more, and delete its files where the gateway put them."""
        return await self.sender.send(
            Request(
                "DELETE",
                _ONE,
                RemovedSkill,
                {"skill": skill},
                {"personality": personality},
                idempotency_key=idempotency_key,
            )
        )
