"""`config.example.yaml` says what the code says, in both directions."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

from gateway.config import ChannelConfig, Config, ModelConfig, ProviderConfig
from gateway.config.channel_kinds import known_kinds, load_kind
from gateway.config.example import example_text, switched_on
from gateway.config.file import check, load_config
from gateway.config.mcp import McpOauthConfig, McpServerConfig
from gateway.config.speech import ServiceConfig
from gateway.config.unattended import HookConfig
from gateway.config.values import Section
from gateway.config.web import OidcConfig
from gateway.domain.personalities.files import PersonalitySettings
from gateway.speech.listening.openai import Config as ListenConfig
from gateway.speech.speaking.openai import Config as SpeakConfig

EXAMPLE = Path(__file__).parents[3] / "config.example.yaml"
ENVIRONMENT = {
    "OPENAI_API_KEY": "k",
    "SLACK_BOT_TOKEN": "xoxb-1",
    "SLACK_APP_TOKEN": "xapp-1",
    "SLACK_HTTP_BOT_TOKEN": "xoxb-h",
    "SLACK_SIGNING_SECRET": "s" * 32,
    "DISCORD_TOKEN": "t",
    "TELEGRAM_BOT_TOKEN": "1:t",
    "MAIL_PASSWORD": "p",
    "MAIL_REFRESH_TOKEN": "r",
    "MAIL_CLIENT_SECRET": "s",
    "MCP_CLIENT_SECRET": "s",
    "ETHOS_STORE_URL": "postgresql://db.example.org/ethos",
    "ETHOS_OIDC_SECRET": "a secret of the provider",
    "HOSTNAME": "north",
    "HASS_TOKEN": "h",
    "ETHOS_SECRET": bytes(range(32)).hex(),
    "HOOK_SECRET": "whsec_" + "A" * 43 + "=",
    "HOOK_OLD_SECRET": "whsec_" + "B" * 42 + "A=",
    "CI_HOOK_SECRET": "whsec_" + "C" * 42 + "A=",
    "CI_HOOK_OLD_SECRET": "whsec_" + "D" * 42 + "A=",
}


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with the whole example, and what it refers to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mail-ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "anthropic.key").touch(0o600)
    (tmp_path / "secrets" / "anthropic.key").write_text("k")
    # With `store.url` a memory in files is refused.
    (tmp_path / "config.yaml").write_text(switched_on(EXAMPLE.read_text()).replace("    kind: markdown\n", ""))
    return tmp_path / "config.yaml"


def plain(model: type[BaseModel], name: str) -> Any:
    """A field's default as YAML would have it; None where it must be given, or is optional."""
    field = model.model_fields[name]
    return (
        None
        if field.is_required()
        else TypeAdapter(Any).dump_python(field.get_default(call_default_factory=True), mode="json")
    )


def differences(model: type[BaseModel], section: dict[str, Any], path: str) -> Iterator[str]:
    """Keys that one side lacks, and defaults that differ."""
    apart = {
        Config: ("models", "channels", "budgets", "mcp"),
        ChannelConfig: ("settings",),
        ProviderConfig: ("settings",),
        ServiceConfig: ("settings", "fault"),
    }
    fields = [name for name in model.model_fields if name not in apart.get(model, ())]
    yield from (f"{path}{name} is not in the example" for name in fields if name not in section)
    for name in section.keys() & set(fields):
        annotation = model.model_fields[name].annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            yield from differences(annotation, section[name], f"{path}{name}.")
            continue
        default = plain(model, name)
        if default not in (None, (), [], {}) and default != section[name]:
            yield f"{path}{name} is {default} in the code and {section[name]} in the example"


def test_every_key_of_the_core_is_in_the_example_with_the_default_that_the_code_has() -> None:
    values = yaml.safe_load(switched_on(EXAMPLE.read_text()))
    found = [*differences(ModelConfig, {**values["models"]["local"], **values["models"]["cloud"]}, "models.")]
    servers = values["mcp"]["servers"]
    found += differences(McpServerConfig, {**servers["home"], **servers["notes"], **servers["mail"]}, "mcp: ")
    found += differences(McpOauthConfig, {**servers["mail"]["oauth"], "issuer": "beside another mode"}, "mcp oauth: ")
    found += differences(OidcConfig, {**values["web"]["oidc"], "email_kind": "off within what is off"}, "web.oidc: ")
    found += differences(HookConfig, values["hooks"]["ci"], "hooks: ")
    for half, own in (("listen", ListenConfig), ("speak", SpeakConfig)):
        found += differences(ServiceConfig, values["speech"][half], f"speech.{half}.")
        found += differences(own, values["speech"][half], f"speech.{half}.")
    for name, field in Config.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found += differences(field.annotation, values[name], f"{name}.")
    found += differences(Config, values, "")
    assert found == []


def test_every_kind_of_channel_is_in_the_example_with_every_key_of_its_own() -> None:
    channels = list(yaml.safe_load(switched_on(EXAMPLE.read_text()))["channels"].values())
    found = []
    for kind in known_kinds():
        section = {key: value for channel in channels if channel["kind"] == kind for key, value in channel.items()}
        found += differences(load_kind(kind).config, section, f"{kind}: ")
    whole = {key: value for channel in channels for key, value in channel.items()}
    found += differences(ChannelConfig, whole, "channels: ")
    assert found == []


def test_the_example_as_it_is_means_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(EXAMPLE.read_text())
    loaded = load_config(path, environment={})
    assert loaded.config == load_config(home=tmp_path / "empty").config
    assert loaded.warnings == ()


def test_the_example_with_everything_switched_on_loads(whole: Path) -> None:
    findings = check(whole, environment=ENVIRONMENT)
    assert findings.problems == ()
    assert [warning.split(": ")[1] for warning in findings.warnings] == ["channels.telegram"]


def test_every_setting_in_the_example_has_a_comment_above_it() -> None:
    """A run of settings may share one, a section may have it above its name, or above the whole."""
    commented, uncommented = False, []
    for line in EXAMPLE.read_text().splitlines():
        text = switched_on(line).strip()
        if text.startswith("#"):
            commented = True
        elif not text:
            commented = False
        elif not commented and not re.fullmatch(r"[a-z_]+:", text):
            uncommented.append(text)
    assert uncommented == []


def test_a_package_of_the_gateway_has_the_example_too() -> None:
    assert example_text() == EXAMPLE.read_text()


def test_the_example_is_made_of_lines_that_fit_a_screen() -> None:
    assert [line for line in EXAMPLE.read_text().splitlines() if len(line) > 120] == []


def yaml_in(document: str) -> str:
    """The first block of YAML in a page of the documentation."""
    text = (EXAMPLE.parent / "docs" / document).read_text()
    return text.split("```yaml\n")[1].split("```")[0]


def test_the_yaml_in_the_documentation_loads(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml_in("configuration.md"))
    assert load_config(tmp_path / "config.yaml", environment={"ANTHROPIC_API_KEY": "k"}).config.model == "main"
    settings = PersonalitySettings.model_validate(yaml.safe_load(yaml_in("personalities.md")))
    assert settings.model_fields_set == set(PersonalitySettings.model_fields), "each key is shown"
    assert settings.traits.model_fields_set == set(type(settings.traits).model_fields)
