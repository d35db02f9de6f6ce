"""What can be configured, and what each mistake is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.email import Config, build
from gateway.protocols import AdapterServices, SupportsAttachments, SupportsPreview, SupportsSendLookup, SupportsTyping
from tests.conformance.conversation_log import FakeLog
from tests.conformance.notes import FakeNotes

LEAST: dict[str, Any] = {
    "address": "Agent@B\u00fccher.example",
    "imap_host": "imap.example.org",
    "smtp_host": "smtp.example.org",
    "password": "secret",
    "trusted_authserv_id": "mx.example.org",
}
OAUTH = {"token_url": "https://oauth.example.org/token", "client_id": "x", "refresh_token": "y"}


def adapter(**keys: Any) -> Any:
    services = AdapterServices(
        name="mail", state_dir=Path("/nonexistent"), log=FakeLog(), notes=FakeNotes(), commands=()
    )
    return build(Config.model_validate({**LEAST, **keys}), services)


def test_the_least_that_is_needed_is_encrypted() -> None:
    made = adapter()
    assert (made._imap.port, made._imap.context is not None) == (993, True)
    assert (made._smtp._server.port, made._smtp._server.tls) == (465, "implicit")
    assert made._imap.username == "agent@xn--bcher-kva.example"
    assert made.kind == "email"


@pytest.mark.parametrize(
    ("keys", "imap_port", "smtp_port"),
    [
        ({"smtp_tls": "starttls"}, 993, 587),
        ({"imap_tls": "none", "smtp_tls": "none"}, 143, 25),
        ({"imap_port": 10993, "smtp_port": 10465}, 10993, 10465),
    ],
)
def test_ports_follow_from_how_it_is_encrypted(keys: dict[str, Any], imap_port: int, smtp_port: int) -> None:
    made = adapter(**keys)
    assert (made._imap.port, made._smtp._server.port) == (imap_port, smtp_port)


def test_clear_text_beyond_this_machine_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    adapter(imap_tls="none", imap_host="127.0.0.1")
    assert caplog.text == ""
    adapter(imap_tls="none")
    assert "clear text" in caplog.text


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"password": None}, "either `password` or `oauth`"),
        ({"oauth": OAUTH}, "either `password` or `oauth`"),
        ({"address": "nobody"}, "no mail address"),
        ({"aliases": ["x"]}, "no mail address"),
        ({"imap_tls": "starttls"}, "implicit"),
        ({"password": None, "oauth": {**OAUTH, "token_url": "http://oauth.example.org/token"}}, "https://"),
        ({"display_name": "a\r\nBcc: x"}, "one line"),
        ({"pasword": "x"}, "pasword"),
        ({"ca_file": "/nonexistent/ca.pem"}, "/nonexistent/ca.pem cannot be read (No such file"),
        ({"ca_file": "ca.pem"}, "the whole path"),
        ({"ca_file": "/proc/self/status"}, "certificates in PEM"),
    ],
)
def test_a_mistake_is_told_with_what_was_expected_and_without_a_secret(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({**LEAST, **keys})
    errors = str([(each["loc"], each["msg"]) for each in caught.value.errors()])
    assert said in errors
    assert "secret" not in f"{errors} {caught.value}"


def test_a_file_with_certificates_is_found_below_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    assert Config.model_validate({**LEAST, "ca_file": "~/ca.pem"}).ca_file == tmp_path / "ca.pem"


def test_it_can_do_what_mail_can_and_nothing_else() -> None:
    made = adapter()
    assert isinstance(made, SupportsAttachments)
    assert isinstance(made, SupportsSendLookup)
    assert not isinstance(made, (SupportsPreview, SupportsTyping))
    assert not made.capabilities.is_idempotent_send
