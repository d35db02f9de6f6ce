"""Reads the sections that choose a service, with the keys of its kind beside those of the core: search and speech."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.config.packages import Kind, KindUnusable, Packages
from gateway.config.search_kinds import PACKAGES as SEARCHING
from gateway.config.search_kinds import load_search_kind
from gateway.config.secrets import fetch_secrets
from gateway.config.speech import LISTENING, SPEAKING, ServiceConfig, load_speech_kind
from gateway.config.web import SearchConfig
from gateway.files.positions.validation import validate
from gateway.files.positions.yaml import value_at

if TYPE_CHECKING:
    from gateway.config.file import _Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """A key at which a service is chosen."""

    section: str
    key: str
    model: type[SearchConfig | ServiceConfig]
    packages: Packages
    load: Callable[[str], Kind]


_CHOICES = (
    _Choice(section="web", key="search", model=SearchConfig, packages=SEARCHING, load=load_search_kind),
    _Choice(
        section="speech",
        key="listen",
        model=ServiceConfig,
        packages=LISTENING,
        load=partial(load_speech_kind, LISTENING),
    ),
    _Choice(
        section="speech", key="speak", model=ServiceConfig, packages=SPEAKING, load=partial(load_speech_kind, SPEAKING)
    ),
)


def services_in(reading: _Reading) -> dict[str, Any]:
    """The sections that choose services, each choice as its model where it is a section."""
    found: dict[str, Any] = {}
    for choice in _CHOICES:
        service = value_at(reading.document.values, (choice.section, choice.key))
        if isinstance(service, dict):
            whole = found.setdefault(choice.section, dict(reading.document.values[choice.section]))
            whole[choice.key] = _chosen(choice, service, reading)
    return found


def _chosen(choice: _Choice, service: dict[str, Any], reading: _Reading) -> SearchConfig | ServiceConfig | None:
    """One of another author that cannot be used is warned of, and left out."""
    document, path = reading.document, (choice.section, choice.key)
    if "kind" not in service and choice.model.model_fields["kind"].is_required():
        document.complain((*path, "kind"), f"missing; {choice.packages.expected()}")
        return None
    ours = choice.model.model_fields.keys() - {"settings", "fault"}
    core = {key: value for key, value in service.items() if key in ours}
    chosen = validate(choice.model, document, path, values=core, hidden=reading.hidden)
    if chosen is None:
        return None
    try:
        kind = choice.load(chosen.kind)
    except KindUnusable as error:
        if "." not in chosen.kind:
            document.complain((*path, "kind"), str(error))
            return None
        reading.warned.complain((*path, "kind"), f"{error}. It is left out")
        return chosen.model_copy(update={"fault": str(error)})
    reading.origins |= fetch_secrets(document, kind.config, path, reading.path.parent, reading.unwritten)
    fetched = value_at(document.values, path)
    own = {key: value for key, value in fetched.items() if key not in ours}
    settings = validate(kind.config, document, path, values=own, hidden=reading.hidden)
    return chosen.model_copy(update={"settings": settings})
