"""`/settings`: every key of the configuration, and changes of it."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.sdk.models.settings import (
    ChangeSettings,
    Restarting,
    SettingsList,
    SettingsProposal,
    SettingsSaved,
    UndoSettings,
)
from gateway.web.api.access import Operator, WithServices
from gateway.web.api.answers import problems

router = APIRouter(prefix="/settings", tags=["settings"])

_NOT_WRITTEN = "The file cannot be changed so; says what to do."
_ANOTHER = f"The file is another version. {_NOT_WRITTEN}"
_ANY = UndoSettings()


@router.get("", responses=problems(not_possible="The file cannot be read."), summary="List settings")
async def list_(caller: Operator, services: WithServices) -> SettingsList:
    """Every key of the configuration, with what it is for, what it may be, and what it is."""
    return await services.settings.listed(caller)


@router.post("/propose", responses=problems(not_possible=_NOT_WRITTEN), summary="Preview changes")
async def propose(caller: Operator, services: WithServices, body: ChangeSettings) -> SettingsProposal:
    """What the changes would do, with nothing of it done."""
    return await services.settings.proposed(caller, body)


@router.patch("", responses=problems(not_possible=_ANOTHER), summary="Change settings")
async def save(caller: Operator, services: WithServices, body: ChangeSettings) -> SettingsSaved:
    """Write the changes into config.yaml, all or none, and take over what can be."""
    return await services.settings.saved(caller, body)


@router.get("/undo", responses=problems(not_possible="There is nothing to undo."), summary="Preview an undo")
async def propose_undo(caller: Operator, services: WithServices) -> SettingsProposal:
    """What an undo would do, with nothing of it done."""
    return await services.settings.proposed_undo(caller)


@router.post(
    "/undo", responses=problems(not_possible=f"There is nothing to undo. {_ANOTHER}"), summary="Undo the last change"
)
async def undo(caller: Operator, services: WithServices, body: UndoSettings = _ANY) -> SettingsSaved:
    """Write the file before the last change back; a second undo makes the change again."""
    return await services.settings.undone(caller, body.version)


@router.post(
    "/restart",
    status_code=202,
    responses=problems(not_possible="It was not started by `ethos serve`."),
    summary="Restart the gateway",
)
async def restart(caller: Operator, services: WithServices) -> Restarting:
    """Have this process end what runs, as a stop does, and begin again."""
    return await services.settings.restarted(caller)
