"""Configurations that load: defaults, where each value came from, secrets, channels, and what is unwise."""

import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import keyring
import keyring.backend
import keyring.errors
import pytest

import adapters
from gateway.config import Config, RetentionConfig
from gateway.config.channel_kinds import load_kind
from gateway.config.file import check, load_config
from gateway.config.packages import KindUnusable
from gateway.errors import ConfigError
from gateway.files.home import data_directory

PIGEON = "tests.gateway.config.kinds.pigeon"
OPEN = "tests.fake_channel"
"""A kind on which everybody may talk unless the file says otherwise."""
CANARY = "canary-7c0ffee"

WriteConfig = Callable[[str | bytes], Path]


def model_with_key(key: str) -> str:
    return f"models:\n  cloud:\n    provider: openai\n    model: m\n    api_key: {key}\n"


# ---- defaults and sources


def test_a_home_that_is_not_known_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match="no home directory for ~no_such_user/x; set ETHOS_HOME to an absolute path"):
        data_directory({"ETHOS_HOME": "~no_such_user/x"})


def test_a_relative_home_is_one_place_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "here")
    assert data_directory({}) == tmp_path / "here" / ".ethos"


def test_a_link_to_a_file_that_is_not_there_is_no_missing_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").symlink_to(tmp_path / "dotfiles" / "config.yaml")
    with pytest.raises(ConfigError, match="a link to a file that is not there"):
        load_config(home=tmp_path, environment={})


def test_without_a_file_there_are_the_defaults_and_no_channel_besides_the_local_one(tmp_path: Path) -> None:
    loaded = load_config(home=tmp_path)
    assert loaded.config.model == "offline"
    assert loaded.config.models["offline"].provider == "offline"
    assert loaded.config.channels == {}
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.warnings == ()


@pytest.mark.parametrize("text", ["", "# nothing\n", "\ufeff", "---\n", "web:\nmodels:\n", "channels:\n  #telegram:\n"])
def test_a_file_without_settings_means_the_defaults(text: str, write_config: WriteConfig, tmp_path: Path) -> None:
    assert load_config(write_config(text)).config == load_config(home=tmp_path / "elsewhere").config


def test_null_is_a_value_and_no_word_for_the_default(write_config: WriteConfig) -> None:
    """Where it says never, what is kept is never deleted; where it says nothing, it is no value."""
    lines = [
        f"  {name}: {null}" for name, null in zip(RetentionConfig.model_fields, cycle(["null", "~"]), strict=False)
    ]
    config = load_config(write_config("\n".join(["retention:", *lines]))).config
    assert set(config.retention.model_dump().values()) == {None}
    assert load_config(write_config("secret: null\nstore: {url: ~}\n")).config.secret is None
    with pytest.raises(ConfigError) as caught:
        load_config(write_config("web: ~\nlimits:\n  steps_per_turn: null\nmodel: null\n"))
    assert [line.partition("; ")[0] for line in str(caught.value).splitlines()] == [
        "config.yaml:1:6: web: null is not a section of `key: value` lines",
        "config.yaml:3:19: limits.steps_per_turn: null is not a whole number",
        "config.yaml:4:8: model: null is not text",
    ]
    assert "expected text, or no such key" in str(caught.value)


def test_each_value_keeps_the_line_it_came_from(write_config: WriteConfig) -> None:
    loaded = load_config(
        write_config(
            "web:\n  port: ${PORT}\nmodels:\n  m:\n    provider: openai\n    model: x\n    api_key: ${KEY}\n"
            f"channels:\n  loft:\n    kind: {PIGEON}\n    ring: ${{RING}}\n    access: open\n"
        ),
        environment={"PORT": "80", "KEY": CANARY, "RING": CANARY},
    )
    assert loaded.config.web.port == 80
    wanted = ("web.port", "web.host", "models.m.api_key", "channels.loft.access", "channels.loft.ring")
    assert {key: loaded.sources[key] for key in (*wanted, "channels.loft.speed_kmh")} == {
        "web.port": "config.yaml:2, from ${PORT}",
        "web.host": "default",
        "models.m.api_key": "config.yaml:7, from ${KEY}",
        "channels.loft.access": "config.yaml:12",
        "channels.loft.ring": "config.yaml:11, from ${RING}",
        "channels.loft.speed_kmh": "default",
    }
    assert CANARY not in repr(loaded)


def test_offline_is_always_among_the_models_and_may_be_named(write_config: WriteConfig) -> None:
    models = load_config(write_config("models:\n  offline:\n    provider: offline\n")).config.models
    assert list(models) == ["offline"]
    assert list(load_config(write_config(model_with_key("k"))).config.models) == ["offline", "cloud"]


def test_a_configuration_cannot_be_changed_after_it_was_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().model = "other"  # type: ignore[misc]


def test_words_that_other_yaml_takes_for_truth_or_times_stay_text(write_config: WriteConfig) -> None:
    text = f"channels:\n  no:\n    kind: {PIGEON}\n    ring: 12:30\n    allow: [0123, 4567, on, a.b]\n"
    channel = load_config(write_config(text)).config.channels["no"]
    assert channel.allow == ("0123", "4567", "on", "a.b")
    assert channel.settings.ring.get_secret_value() == "12:30"


def test_ethos_home_says_where_the_data_directory_is(tmp_path: Path) -> None:
    assert data_directory({"ETHOS_HOME": str(tmp_path)}) == tmp_path
    assert data_directory({"ETHOS_HOME": ""}) == data_directory({}) == Path.home() / ".ethos"


# ---- values from elsewhere


def test_variables_are_replaced_within_text_too_and_can_be_escaped(write_config: WriteConfig) -> None:
    text = model_with_key('"a${X}-$${X}-$X-${Y}"') + '    base_url: "http://${HOST}:80/v1"\n'
    model = load_config(write_config(text), environment={"X": "1", "Y": "${X}", "HOST": "h"}).config.models["cloud"]
    assert model.api_key is not None
    assert model.api_key.get_secret_value() == "a1-${X}-$X-${X}", "a value is not read for references again"
    assert model.base_url == "http://h:80/v1"


def test_a_secret_is_read_from_a_file_beside_the_configuration(write_config: WriteConfig, tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text(f"{CANARY}\n")
    secret.chmod(0o600)
    loaded = load_config(write_config(model_with_key("{file: key}")))
    key = loaded.config.models["cloud"].api_key
    assert key is not None
    assert key.get_secret_value() == CANARY
    assert loaded.sources["models.cloud.api_key"] == "config.yaml:5, from file key"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_secret_that_others_may_read_is_refused(mode: int, write_config: WriteConfig, tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text(CANARY)
    secret.chmod(mode)
    assert check(write_config(model_with_key("{file: key}"))).problems == (
        (
            f"config.yaml:5:14: models.cloud.api_key: {secret} is open to other users ({mode:04o}); "
            f"expected 0600: `chmod 600 {secret}`"
        ),
    )


def test_a_secret_file_that_cannot_be_used_is_named(write_config: WriteConfig, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, data in (("empty", b" \n"), ("latin", f"{CANARY}\xe9".encode("latin-1")), ("nul", b"a\0")):
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
    wanted = {
        "missing": "cannot be read: No such file or directory; expected a file with the secret",
        "folder": "is not a file; expected a file with the secret in it",
        "empty": "holds nothing; expected the secret",
        "latin": "is not UTF-8; expected the secret as text",
        "nul": "holds a NUL character; expected the secret",
    }
    for name, text in wanted.items():
        with pytest.raises(ConfigError) as caught:
            load_config(write_config(model_with_key(f"{{file: {name}}}")))
        assert caught.value.problems == [f"config.yaml:5:14: models.cloud.api_key: {tmp_path / name} {text}"]
        assert CANARY not in "".join(traceback.format_exception(caught.value))


class FakeKeyring(keyring.backend.KeyringBackend):
    """A key store in memory; `locked` stands for a desktop where nobody is logged in."""

    priority = 1  # type: ignore[assignment]
    held = {("ethos", "openai"): CANARY}  # noqa: RUF012

    def get_password(self, service: str, username: str) -> str | None:
        if username == "locked":
            raise keyring.errors.KeyringLocked("it is locked")
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held[service, username] = password


@pytest.fixture
def fake_keyring() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(FakeKeyring())
    yield
    keyring.set_keyring(before)


def test_a_secret_comes_from_the_key_store(write_config: WriteConfig, fake_keyring: None) -> None:
    key = load_config(write_config(model_with_key("{keyring: openai}"))).config.models["cloud"].api_key
    assert key is not None
    assert key.get_secret_value() == CANARY


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "nothing",
            "the key store has nothing named 'nothing'; expected it to be put there: `keyring set ethos nothing`",
        ),
        ("locked", "the key store cannot be asked: it is locked; expected one that is unlocked"),
    ],
)
def test_a_key_store_without_the_secret_is_told(
    name: str, text: str, write_config: WriteConfig, fake_keyring: None
) -> None:
    assert check(write_config(model_with_key(f"{{keyring: {name}}}"))).problems == (
        f"config.yaml:5:14: models.cloud.api_key: {text}",
    )


def test_a_missing_keyring_library_says_how_to_install_it(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    (problem,) = check(write_config(model_with_key("{keyring: x}"))).problems
    assert problem.startswith("config.yaml:5:14: models.cloud.api_key: keyring is not installed; run `")
    assert "-m pip install 'keyring>=" in problem


def test_secrets_deep_inside_an_adapters_section_are_found(write_config: WriteConfig, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(CANARY)
    (tmp_path / "key").chmod(0o600)
    settings = (
        load_config(
            write_config(
                f"channels:\n  loft:\n    kind: {PIGEON}\n    ring: {{file: key}}\n"
                "    loft: {door_key: {file: key}}\n    spare_rings: [{file: key}, plain]\n"
            )
        )
        .config.channels["loft"]
        .settings
    )
    assert settings.ring.get_secret_value() == settings.loft.door_key.get_secret_value() == CANARY
    assert [ring.get_secret_value() for ring in settings.spare_rings] == [CANARY, "plain"]
    assert CANARY not in repr(settings)


@pytest.mark.parametrize(
    "wrong",
    [
        'web: {port: "${KEY}"}',
        'web: {host: "${KEY}!"}',
        'log: {level: "${KEY}"}',
        "shutdown_s: ${KEY}",
        "web: ${KEY}",
        f'channels: {{loft: {{kind: {PIGEON}, ring: "${{KEY}}", motto: "${{KEY}}"}}}}',
        f'channels: {{loft: {{kind: {PIGEON}, ring: "${{KEY}}", loft: {{door_key: "bad ${{KEY}}"}}}}}}',
    ],
)
def test_no_secret_is_in_any_error_repr_dump_or_log(
    wrong: str, write_config: WriteConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = model_with_key("${KEY}")
    config = load_config(write_config(text), environment={"KEY": CANARY}).config
    shown = repr(config) + str(config) + config.model_dump_json()
    with pytest.raises(ConfigError) as caught:
        load_config(write_config(f"{text}{wrong}\n"), environment={"KEY": CANARY})
    shown += "".join(traceback.format_exception(caught.value)) + caplog.text
    assert CANARY not in shown


# ---- channels


def test_strangers_are_kept_out_unless_the_adapter_or_the_file_says_otherwise(write_config: WriteConfig) -> None:
    text = (
        f"channels:\n  a:\n    kind: {PIGEON}\n    ring: r\n  b:\n    kind: {PIGEON}\n    ring: r\n    access: open\n"
    )
    text += f"  c:\n    kind: {OPEN}\n  d:\n    kind: {OPEN}\n    access: allowlist\n    allow: [1]\n"
    channels = load_config(write_config(text)).config.channels
    assert {name: channel.access for name, channel in channels.items()} == {
        "a": "pairing",
        "b": "open",
        "c": "open",
        "d": "allowlist",
    }
    roles = {name: channel.role for name, channel in channels.items()}
    assert roles == {"a": "member", "b": "guest", "c": "member", "d": "member"}, "open to strangers: guests"


def test_a_channel_that_is_open_to_members_is_warned_of_the_memory_that_they_share(write_config: WriteConfig) -> None:
    text = f"channels:\n  a:\n    kind: {PIGEON}\n    ring: r\n    access: open\n"
    warned = "\n".join(map(str, load_config(write_config(text)).warnings))
    assert "at your cost" in warned
    assert "MEMORY.md" not in warned
    warned = "\n".join(map(str, load_config(write_config(f"{text}    role: member\n")).warnings))
    assert "shared MEMORY.md" in warned


@pytest.mark.parametrize("off", ["false", "no", "Off"])
def test_a_channel_that_is_switched_off_needs_neither_library_nor_secret(write_config: WriteConfig, off: str) -> None:
    text = f"channels:\n  loft:\n    kind: no_such.pigeon\n    enabled: {off}\n    ring: ${{NOT_SET}}\n    what: ever\n"
    loaded = load_config(write_config(text), environment={})
    assert not loaded.config.channels["loft"].enabled
    assert loaded.config.channels["loft"].settings is None
    assert loaded.warnings == ()


def test_a_kind_of_ours_whose_library_is_missing_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owl").mkdir()
    (tmp_path / "owl" / "__init__.py").write_text("import owlpost.client\n")
    monkeypatch.setattr(adapters, "__path__", [*adapters.__path__, str(tmp_path)])
    with pytest.raises(KindUnusable) as caught:
        load_kind("owl")
    assert str(caught.value) == (
        f"owl needs owlpost, which is not installed; expected `{sys.executable} -m pip install owlpost`"
    )


def test_only_the_packages_of_configured_kinds_are_loaded(write_config: WriteConfig) -> None:
    path = write_config(f"channels:\n  loft:\n    kind: {PIGEON}\n    ring: r\n")
    program = (
        "import sys; from pathlib import Path; from gateway.config.file import load_config\n"
        f"load_config(Path({str(path)!r}))\n"
        "print([name for name in sys.modules if name.startswith('adapters.') or name in ('keyring', 'aiohttp')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


# ---- warnings


def test_a_webhook_whose_host_the_web_server_would_refuse_is_warned_of(write_config: WriteConfig) -> None:
    channel = "channels:\n  phone:\n    kind: telegram\n    token: ${T}\n    webhook_url: https://Ethos.example.org/x\n"
    environment = {"T": "1:secret"}
    (warning,) = check(write_config(channel), environment=environment).warnings
    assert warning.endswith(
        "channels.phone: is called as ethos.example.org, which `web.allowed_hosts` lacks; add it, unless your proxy "
        "sends another name"
    )
    known = write_config(f"{channel}web:\n  allowed_hosts: [ethos.example.org]\n")
    assert check(known, environment=environment).warnings == ()


def test_what_works_but_is_unwise_is_warned_of(write_config: WriteConfig, tmp_path: Path) -> None:
    path = write_config(
        model_with_key(CANARY) + f"channels:\n  loft:\n    kind: {PIGEON}\n    ring: ${{RING}}\n    access: allowlist\n"
        f"  inn:\n    kind: {OPEN}\n    access_in_groups: open\n    allow: ['*@x']\n"
        f"  park:\n    kind: {PIGEON}\n    ring: ${{RING}}\n    access: open\n"
        f"  home:\n    kind: {OPEN}\n    allow: [1]\nweb:\n  host: 0.0.0.0\n"
    )
    path.chmod(0o644)
    soul = tmp_path / "personalities" / "poet"
    soul.mkdir(parents=True)
    (soul / "SOUL.md").write_text("You rhyme.")
    (soul / "personality.yaml").write_text("model: clod\n")
    mute = tmp_path / "personalities" / "mute"
    mute.mkdir()
    (mute / "personality.yaml").write_text("")
    findings = check(path, environment={"RING": "r"})
    assert findings.problems == ()
    assert findings.warnings == (
        f"config.yaml:1:1: other users may read the secrets in this file (0644); `chmod 600 {path}`",
        (
            "config.yaml:5:14: models.cloud.api_key: a secret is in the file; better as `${ENV_VAR}`, "
            "`{file: path}` or `{keyring: name}`"
        ),
        (
            "config.yaml:8:5: channels.loft: owners only may talk here; put the ids of people into `allow`, or set "
            "`pairing`"
        ),
        (
            "config.yaml:14:13: channels.inn.allow[0]: '*@x': no patterns here; expected the platform's own "
            "id of a person, or `access: open`"
        ),
        (
            "config.yaml:18:13: channels.park.access: anybody on the platform who finds the agent may talk to it, at "
            "your cost; expected `pairing`"
        ),
        "config.yaml:21:12: channels.home.allow: has no effect, for `access` is `open`; set `access: allowlist`",
        "config.yaml:23:9: web.host: other machines can reach the web server; put one with TLS in front of it",
        (
            "the personality mute cannot be used: personalities/mute/SOUL.md:1:1: missing; expected the personality's "
            "prompt, in Markdown"
        ),
        "the personality poet asks for the model 'clod', which is not among `models` (did you mean `cloud`?)",
    )
