"""What can be set for Slack, and that a secret is never shown."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from adapters.slack import Config

GOOD = {"bot_token": "xoxb-1", "app_token": "xapp-1"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"bot_token": "xoxb-1"}, "either `app_token`"),
        ({**GOOD, "signing_secret": "s"}, "either `app_token`"),
        ({**GOOD, "bot_token": "xapp-secret"}, "`bot_token` that begins with `xoxb-`"),
        ({**GOOD, "app_token": "xoxb-secret"}, "`app_token` that begins with `xapp-`"),
        ({**GOOD, "catch_up_h": -1}, "catch_up_h"),
        ({**GOOD, "api_url": "ftp://x"}, "expected an address such as https://slack.com/api/"),
        ({**GOOD, "api_url": "slack.com"}, "expected an address such as https://slack.com/api/"),
        ({**GOOD, "slash_command": "ethos"}, "slash_command"),
        ({**GOOD, "tokne": "xoxb-secret"}, "tokne"),
    ],
)
def test_a_mistake_is_explained_without_showing_a_secret(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as caught:
        Config(**settings)
    assert "secret" not in str(caught.value).replace("signing_secret", "")


def test_secrets_are_not_in_the_settings_text() -> None:
    assert "xoxb-1" not in repr(Config(**GOOD))  # type: ignore[arg-type]
