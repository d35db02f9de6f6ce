"""The form of a channel: its fields by the keys of its kind, what was typed, and the secrets that are kept meanwhile.

A secret that was typed is never put into a page again. Between a try and a save it is kept in this process, under a
random id that stands in the form: sealed into the page it would need a key that outlives the process, and a cipher that
the core does not have. After a restart, or at another worker, it is simply asked for again.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.config.channel_keys import is_reference
from gateway.sdk.models.channels import ChannelKey, ChannelKindDetail, ChannelTrial
from gateway.services.channels import KEPT
from gateway.web.forms import SECRET_PREFIX, Form

KEY_PREFIX = "key."
DRAFT_FIELD = "draft"
MAX_DRAFTS = 64
DRAFT_S = 1800.0
ACCESS: Mapping[str, str] = {
    "pairing": "People whom you let in",
    "owner": "Only owners",
    "allowlist": "Only listed accounts",
    "open": "Everybody, at your cost",
}
"""Who may talk on a channel, by its mode."""
ACCESS_SAID: Mapping[str, str] = {
    "pairing": "Owners, and people whom an owner lets in. A stranger gets a code, and you decide",
    "owner": "Only owners. Everybody else is told so",
    "allowlist": "Owners, and the accounts that are listed. Everybody else is told the id to list",
    "open": "Everybody who finds it, at your cost",
}
"""The same in a sentence."""
_WORDS = {
    "api": "API", "ca": "CA", "id": "ID", "imap": "IMAP", "oauth": "OAuth", "smtp": "SMTP", "tls": "TLS", "url": "URL",
    "s": "(seconds)", "h": "(hours)",
}  # fmt: skip
SHARED_KEYS: Sequence[ChannelKey] = (
    ChannelKey(
        name="access",
        description="Who may talk",
        type="choice",
        choices=tuple(ACCESS),
        is_required=False,
        is_common=True,
    ),
    ChannelKey(
        name="allow",
        description="Accounts that may always talk, by the platform's own id, one in each line",
        type="list",
        default=[],
        is_required=False,
        is_common=True,
    ),
)
OTHER_SHARED_KEYS: Sequence[ChannelKey] = (
    ChannelKey(
        name="access_in_groups",
        description="Who may talk in groups; left out: the same people",
        type="choice",
        choices=("nobody", *ACCESS),
        is_required=False,
        is_common=False,
    ),
    ChannelKey(
        name="role",
        description="What people may do who have no role of their own",
        type="choice",
        choices=("member", "guest"),
        is_required=False,
        is_common=False,
    ),
    ChannelKey(
        name="personality",
        description="Who answers on this channel; left out: the default one",
        type="text",
        is_required=False,
        is_common=False,
    ),
)


class Drafts:
    """Secrets that were typed and are not saved yet, for half an hour, in memory only."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Mapping[str, str]]] = OrderedDict()

    def keep(self, typed: Mapping[str, str]) -> str:
        """The id under which they are kept; the oldest go when there are too many."""
        self._forget_old()
        draft = secrets.token_urlsafe(24)
        self._kept[draft] = (time.monotonic(), typed)
        while len(self._kept) > MAX_DRAFTS:
            self._kept.popitem(last=False)
        return draft

    def take(self, draft: str) -> Mapping[str, str]:
        """What is kept under an id, and no more after this; nothing where it is too old, or of another process."""
        self._forget_old()
        return self._kept.pop(draft, (0.0, {}))[1]

    def _forget_old(self) -> None:
        oldest = time.monotonic() - DRAFT_S
        while self._kept and next(iter(self._kept.values()))[0] < oldest:
            self._kept.popitem(last=False)


DRAFTS = Drafts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field as it is shown.

    Attributes:
        name: of the input.
        value: what stands in it; of a secret always empty.
        is_kept: a secret is there already, and stays unless another is typed.
        problem: what is wrong with it.
    """

    key: ChannelKey
    name: str
    value: str = ""
    is_kept: bool = False
    problem: str | None = None

    @property
    def label(self) -> str:
        """What the field is called."""
        words = [_WORDS.get(word, word) for word in self.key.name.replace(".", "_").split("_")]
        return words[0][:1].upper() + " ".join(words)[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelForm:
    """A form as it is shown: `templates/dashboard/channels/form.html` has its pieces.

    Attributes:
        channel: the name of the channel; a proposal for a new one.
        fields: by the keys, those of the kind and those of all channels.
        draft: under which typed secrets are kept.
        problem: what is wrong with no single field.
        trial: what the platform has said.
    """

    kind: ChannelKindDetail
    channel: str
    fields: Mapping[str, Field]
    draft: str = ""
    problem: str | None = None
    name_problem: str | None = None
    trial: ChannelTrial | None = None
    shared: Sequence[str] = field(default=tuple(key.name for key in SHARED_KEYS))

    @property
    def common(self) -> Sequence[Field]:
        """Those that everybody needs."""
        return [self.fields[key.name] for key in self.kind.keys if key.is_common]

    @property
    def others(self) -> Sequence[Field]:
        """All others, for a part that is folded."""
        names = [key.name for key in (*self.kind.keys, *OTHER_SHARED_KEYS) if not key.is_common]
        return [self.fields[name] for name in names]

    @property
    def is_open(self) -> bool:
        """Something in the folded part is not as it is by default, or wrong."""
        return any(one.problem or one.value or one.is_kept for one in self.others if one.value != _shown(one.key, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What was sent with a form.

    Attributes:
        settings: for the service; None for a key that is to go.
        secrets: those that were typed now or before, by their keys.
    """

    channel: str
    settings: dict[str, Any]
    secrets: Mapping[str, str]


def keys_in(kind: ChannelKindDetail) -> Sequence[ChannelKey]:
    """All keys that the form of a kind has."""
    access, *others = SHARED_KEYS
    return (*kind.keys, access.model_copy(update={"default": kind.access_default}), *others, *OTHER_SHARED_KEYS)


def typed_in(form: Form, kind: ChannelKindDetail, before: Mapping[str, Any]) -> Typed:
    """Read what was sent; `before` is what stands in the file, for a channel that is there."""
    flat, held = _flat(before), DRAFTS.take(form.get(DRAFT_FIELD))
    typed: dict[str, Any] = {}
    kept: dict[str, str] = {}
    for key in keys_in(kind):
        if key.type == "secret":
            secret = form.get(SECRET_PREFIX + key.name).strip() or held.get(key.name, "")
            if secret:
                kept[key.name] = typed[key.name] = secret
        else:
            value = _read(key, form)
            if key.name in flat or value != key.default:
                typed[key.name] = value
    return Typed(channel=form.get("name").strip(), settings=_nested(typed), secrets=kept)


def form_of(
    kind: ChannelKindDetail,
    *,
    channel: str,
    settings: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    typed: Typed | None = None,
    problems: Mapping[str, str] | None = None,
    **more: Any,
) -> ChannelForm:
    """The form with these values.

    Args:
        settings: what stands in the fields.
        before: what stands in the file, for a channel that is there.
        typed: its secrets are kept under a draft.
        problems: by the keys.
        more: of `ChannelForm`.
    """
    flat, there = _flat(settings), _flat(before or {})
    problems = dict(problems or {})
    secret = {} if typed is None else typed.secrets
    fields = {
        key.name: Field(
            key=key,
            name=(SECRET_PREFIX if key.type == "secret" else KEY_PREFIX) + key.name,
            value="" if key.type == "secret" else _shown(key, flat.get(key.name)),
            is_kept=key.type == "secret" and (key.name in secret or key.name in there),
            problem=problems.pop(key.name, None),
        )
        for key in keys_in(kind)
    }
    name_problem = problems.pop("name", None)
    general = "\n".join(f"{key}: {text}" for key, text in problems.items()) or more.pop("problem", None)
    return ChannelForm(
        kind=kind,
        channel=channel,
        fields=fields,
        draft=DRAFTS.keep(secret) if secret else "",
        problem=general,
        name_problem=name_problem,
        **more,
    )


def _read(key: ChannelKey, form: Form) -> Any:
    text = form.get(KEY_PREFIX + key.name).strip()
    if key.type == "switch":
        return form.has(KEY_PREFIX + key.name)
    if key.type == "list":
        return [line.strip() for line in text.splitlines() if line.strip()]
    if not text:
        return None
    if key.type == "number":
        return _number(text)
    return text


def _number(text: str) -> int | float | str:
    for make in (int, float):
        try:
            return make(text)
        except ValueError:
            continue
    return text  # the check of the configuration says what was expected


def _shown(key: ChannelKey, value: Any) -> str:
    value = key.default if value is None else value
    if key.type == "switch":
        return "yes" if value else ""
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return "" if value is None else str(value)


def _flat(settings: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """With dots for sections; a secret that is there, or is referred to, as `KEPT`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and not is_reference(value):
            found |= _flat(value, f"{section}{name}.")
        else:
            found[section + name] = KEPT if isinstance(value, Mapping) else value
    return found


def _nested(typed: Mapping[str, Any]) -> dict[str, Any]:
    """With sections for dots."""
    found: dict[str, Any] = {}
    for name, value in typed.items():
        *sections, last = name.split(".")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return found
