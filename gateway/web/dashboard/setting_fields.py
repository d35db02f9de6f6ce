"""Fields of a form for keys of the configuration: what is shown in each, and what a sent form changes.

The macro `field` of `dashboard/settings/fields.html` shows one. Each has a field `v:KEY`, and `was:KEY` with what stood
in it: so only what somebody changed is a change, also where another editor has changed the rest meanwhile. A secret is
in a field `secret.KEY`, which no page shows again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.config.describing import write_typed
from gateway.sdk.models.settings import Setting, SettingChange
from gateway.web.forms import SECRET_PREFIX, Form

VALUE, BEFORE, REMOVE = "v:", "was:", "remove:"
ON = "true"
_MANY_LINES = ("list", "yaml", "long")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key in a form.

    Attributes:
        name: what the field is called, without what its heading says.
        before: what stood in it when the form was shown.
        typed: what stands in it.
        error: what is wrong with it.
    """

    setting: Setting
    name: str
    before: str
    typed: str
    error: str = ""

    @property
    def id(self) -> str:
        """For the page; a key may hold characters that no id has."""
        return "s-" + re.sub(r"[^A-Za-z0-9_-]", lambda found: f"-{ord(found[0]):x}-", self.setting.key)

    @property
    def bounds(self) -> str:
        """The limits of a number, for people."""
        one = self.setting
        words = (("At least", one.at_least), ("More than", one.more_than), ("At most", one.at_most))
        found = [f"{word} {_number(bound)}" for word, bound in words if bound is not None]
        return ", ".join([*found[:1], *(each.lower() for each in found[1:])])

    @property
    def default(self) -> str:
        """The default, for people; empty where there is none."""
        default = self.setting.default
        if default in (None, [], {}):
            return ""
        if isinstance(default, bool):
            return "on" if default else "off"
        return ", ".join(map(str, default)) if isinstance(default, list | tuple) else str(default)

    @property
    def is_number(self) -> bool:
        """Whether a field for numbers can show what stands in it."""
        return not self.typed or re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", self.typed) is not None

    @property
    def rows(self) -> int:
        """Of a field of several lines."""
        return max(2, self.typed.count("\n") + 1)


def fields_of(
    settings: Sequence[Setting],
    *,
    typed: Mapping[str, str] | None = None,
    errors: Mapping[str, str] | None = None,
    below: str = "",
) -> list[Field]:
    """A field for each of the settings.

    Args:
        typed: what stands in them, by key, where it is not the value of the file.
        errors: what is wrong, by key.
        below: a key whose name the heading says already.
    """
    return [
        Field(
            setting=one,
            name=one.key.removeprefix(f"{below}.") if below else one.key,
            before=shown_in_field(one),
            typed=(typed or {}).get(one.key, shown_in_field(one)),
            error=(errors or {}).get(one.key, ""),
        )
        for one in settings
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def shown_in_field(setting: Setting) -> str:
    """What stands in the field: the value of the file, or else the default; nothing of a secret."""
    value = setting.value if setting.is_set else setting.default
    if setting.control == "secret" or value is None:
        return ""
    if isinstance(value, bool):
        return ON if value else "false"
    if setting.control in _MANY_LINES or isinstance(value, dict | list):
        return "" if value in ([], {}) else write_typed(value)
    return str(value)


def typed_in(form: Form, settings: Sequence[Setting]) -> Mapping[str, str]:
    """What is in the fields of a form that was sent, by key; secrets left out."""
    return {
        one.key: _typed(form, one) for one in settings if one.control != "secret" and form.has(f"{BEFORE}{one.key}")
    }


def changes_in(form: Form, settings: Sequence[Setting]) -> list[SettingChange]:
    """What somebody changed in the fields of these settings."""
    return [change for one in settings if (change := _change(form, one)) is not None]


def _change(form: Form, setting: Setting) -> SettingChange | None:
    key = setting.key
    if form.has(f"{REMOVE}{key}"):
        return SettingChange(key=key, is_removed=True)
    if setting.control == "secret":
        secret = form.get(f"{SECRET_PREFIX}{key}").strip()
        return _secret(key, secret) if secret else None
    if not form.has(f"{BEFORE}{key}"):
        return None
    typed, before = _typed(form, setting), form.get(f"{BEFORE}{key}")
    if typed == before:
        return None
    if typed.strip():
        return SettingChange(key=key, text=typed)
    is_emptied = setting.control == "list" and setting.default not in (None, [])
    return SettingChange(key=key, value=[]) if is_emptied else SettingChange(key=key, is_removed=True)


def _secret(key: str, typed: str) -> SettingChange:
    """A reference to a variable stands in the file itself."""
    is_reference = typed.startswith("${") and typed.endswith("}")
    return SettingChange(key=key, text=typed) if is_reference else SettingChange(key=key, secret=typed)


def _typed(form: Form, setting: Setting) -> str:
    text = form.get(f"{VALUE}{setting.key}")
    if setting.control == "switch" and setting.default is not None:
        return ON if text == ON else "false"
    return text if setting.control in _MANY_LINES else text.strip()


def merged(form: Form, settings: Sequence[Setting]) -> tuple[Mapping[str, str], Mapping[str, tuple[str, str]]]:
    """After somebody else has changed the file: what stands in each field, and what they changed, from and to.

    What was typed stays; a field that nobody touched here has what stands in the file now.
    """
    fields: dict[str, str] = {}
    theirs: dict[str, tuple[str, str]] = {}
    for one in settings:
        if one.control == "secret" or not form.has(f"{BEFORE}{one.key}"):
            continue
        now, before, typed = shown_in_field(one), form.get(f"{BEFORE}{one.key}"), _typed(form, one)
        fields[one.key] = now if typed == before else typed
        if now != before:
            theirs[one.key] = (before, now)
    return fields, theirs


def carried(form: Form) -> list[tuple[str, str]]:
    """The fields of a form to send it again; no secret is among them."""
    return [(name, value) for name, value in form.fields if name.startswith((VALUE, BEFORE, REMOVE))]
