"""The form of a channel: what was typed becomes settings, and secrets are kept out of pages."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.sdk.models.channels import ChannelKey, ChannelKindDetail
from gateway.services.channels import KEPT
from gateway.web.dashboard import channel_forms
from gateway.web.dashboard.channel_forms import DRAFT_FIELD, Drafts, form_of, typed_in
from gateway.web.dashboard.filters import coded
from gateway.web.forms import Form


def key(name: str, type_: Any, **more: Any) -> ChannelKey:
    return ChannelKey.model_validate(
        {"name": name, "description": "", "type": type_, "is_required": False, "is_common": False, **more}
    )


KIND = ChannelKindDetail(
    kind="telex",
    title="Telex",
    summary="",
    install=None,
    can_try=True,
    access_default="pairing",
    keys=(
        key("token", "secret", is_common=True),
        key("wait_s", "number", default=30),
        key("is_loud", "switch", default=True),
        key("lines", "list", default=[]),
        key("login.client", "text"),
        key("login.secret", "secret"),
    ),
    steps=(),
    then=(),
)
UNTOUCHED = [("key.wait_s", "30"), ("key.is_loud", "yes"), ("key.lines", ""), ("key.access", "pairing")]


def test_what_is_as_by_default_is_not_written() -> None:
    typed = typed_in(Form([("name", " line "), *UNTOUCHED]), KIND, {})
    assert (typed.channel, typed.settings) == ("line", {})


def test_what_was_typed_has_its_type_and_its_section() -> None:
    fields = [("key.wait_s", "2.5"), ("key.lines", "a\r\n\r\n b "), ("key.login.client", "x"), ("secret.token", " t ")]
    typed = typed_in(Form([*fields, ("key.access", "open")]), KIND, {})
    assert typed.settings == {
        "token": "t", "wait_s": 2.5, "is_loud": False, "lines": ["a", "b"], "login": {"client": "x"}, "access": "open",
    }  # fmt: skip
    assert typed_in(Form([*UNTOUCHED, ("key.wait_s", "soon")]), KIND, {}).settings == {"wait_s": "soon"}


def test_a_field_that_was_emptied_takes_its_key_away_and_a_secret_left_alone_stays() -> None:
    before = {"token": KEPT, "wait_s": 9, "login": {"client": "x", "secret": {"file": "secrets/x"}}}
    typed = typed_in(Form([("key.wait_s", ""), ("key.is_loud", "yes"), ("key.access", "pairing")]), KIND, before)
    assert typed.settings == {"wait_s": None, "login": {"client": None}}


def test_a_typed_secret_is_kept_for_the_next_try_and_stands_in_no_field() -> None:
    typed = typed_in(Form([*UNTOUCHED, ("secret.token", "canary")]), KIND, {})
    shown = form_of(KIND, channel="line", settings=typed.settings, typed=typed, problems={"wait_s": "too long"})
    assert "canary" not in repr(shown)
    assert shown.fields["token"].is_kept
    assert shown.fields["wait_s"].problem == "too long"
    again = typed_in(Form([*UNTOUCHED, ("secret.token", ""), (DRAFT_FIELD, shown.draft)]), KIND, {})
    assert again.settings == {"token": "canary"}
    assert typed_in(Form([*UNTOUCHED, (DRAFT_FIELD, shown.draft)]), KIND, {}).settings == {}, "it was taken"


def test_a_problem_of_no_field_stands_above_the_form() -> None:
    shown = form_of(KIND, channel="line", settings={}, problems={"name": "taken", "tokn": "unknown"})
    assert (shown.name_problem, shown.problem) == ("taken", "tokn: unknown")


def test_drafts_are_few_and_short_lived(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = Drafts()
    first = drafts.keep({"token": "0"})
    kept = [drafts.keep({"token": str(number)}) for number in range(channel_forms.MAX_DRAFTS)]
    assert drafts.take(first) == {}
    assert drafts.take(kept[-1]) == {"token": str(channel_forms.MAX_DRAFTS - 1)}
    monkeypatch.setattr(channel_forms, "DRAFT_S", -1.0)
    assert drafts.take(kept[1]) == {}


def test_the_login_page_holds_a_form_without_its_secrets() -> None:
    assert Form([("name", "line"), ("secret.token", "canary")]).showable == [("name", "line")]


def test_code_in_a_text_is_shown_as_code_and_nothing_in_it_is_html() -> None:
    assert coded("set `<b>` or <i>") == "set <code>&lt;b&gt;</code> or &lt;i&gt;"
    assert coded("a lone ` stays") == "a lone ` stays"
    assert "⟨U+202E⟩" in coded("`\u202e`")
