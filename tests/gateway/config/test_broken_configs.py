"""Row 16: broken configurations, and the exact words that a person gets for each."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.config import ModelConfig
from gateway.config.channel_kinds import known_kinds
from gateway.config.file import check, load_config
from gateway.errors import ConfigError

PIGEON = "tests.gateway.config.kinds.pigeon"
CLOUD = "models:\n  cloud:\n    provider: openai\n    model: m\n    api_key: k\n"
BUILT_IN = "the terminal and the web page are built in and need no channel; take this channel out"
A_SECRET = "expected 32 random bytes as 64 hex characters or base64: `openssl rand -hex 32` makes them"
ENVIRONMENT = {"EMPTY": "", "SECRET_PORT": "canary-port", "GOOD": "fine"}

# What stands in the file, and the problems in it, each without the `config.yaml:` in front.
CASES = {
    "a word where a number belongs": (
        "web:\n  port: eighty\n",
        ["2:9: web.port: 'eighty' is not a whole number; expected a whole number"],
    ),
    "a fraction where a whole number belongs": (
        "limits:\n  running_turns: 1.5\n",
        ["2:18: limits.running_turns: 1.5 is not a whole number; expected a whole number"],
    ),
    "true where a number belongs": (
        "web:\n  port: true\n",
        ["2:9: web.port: true is not a number; expected a number"],
    ),
    "a number where text belongs": (
        "model: 4\n",
        ["1:8: model: 4 is not text; expected text (put it in quotes)"],
    ),
    "a list where text belongs": (
        "personality: [assistant]\n",
        ["1:14: personality: a list is not text; expected text"],
    ),
    "text where a list belongs": (
        "web:\n  allowed_hosts: ethos.example\n",
        ["2:18: web.allowed_hosts: 'ethos.example' is not a list; expected a list"],
    ),
    "a value where a section belongs": (
        "memory: 20000\n",
        [("1:9: memory: 20000 is not a section of `key: value` lines; expected a section of `key: value` lines")],
    ),
    "too large": (
        "web:\n  port: 70000\n",
        ["2:9: web.port: 70000 is too large; expected at most 65535"],
    ),
    "too small": (
        "delivery:\n  max_attempts: 0\n",
        ["2:17: delivery.max_attempts: 0 is too small; expected at least 1"],
    ),
    "no time at all": (
        "memory:\n  lock_timeout_s: 0\n",
        ["2:19: memory.lock_timeout_s: 0 is too small; expected more than 0"],
    ),
    "a channel for the terminal": (
        "channels:\n  terminal: {kind: cli, socket: x, access: none}\n",
        [f"2:3: channels.terminal: {BUILT_IN}"],
    ),
    "a channel for the web page, which is off": (
        "channels:\n  page: {kind: web, enabled: false}\n",
        [f"2:3: channels.page: {BUILT_IN}"],
    ),
    "a kind that is a list": (
        "channels:\n  desk:\n    kind: [cli]\n",
        ["3:11: channels.desk.kind: a list is not text; expected text"],
    ),
    "a channel with the name of the local one": (
        f"channels:\n  local: {{kind: {PIGEON}, ring: r, enabled: false}}\n",
        [
            "2:3: channels.local: this name is kept for the terminal, the web page and programs; expected another name",
        ],
    ),
    "a longest wait shorter than the first": (
        "delivery:\n  first_retry_s: 20\n  longest_retry_s: 5\n",
        ["3:20: delivery.longest_retry_s: 5 is less than first_retry_s; expected at least 20"],
    ),
    "a choice that there is not": (
        "log:\n  level: loud\n",
        ["2:10: log.level: 'loud' is not a choice; expected 'debug', 'info', 'warning' or 'error'"],
    ),
    "an unknown key, nearly right": (
        "web:\n  prot: 80\n",
        [
            (
                "2:3: web.prot: unknown key (did you mean `port`?); expected one of host, port, allowed_hosts, "
                "public_url, oidc, max_upload_bytes, fetch, search, ports, allow, allow_private"
            )
        ],
    ),
    "thinking that no model can do": (
        (
            "models:\n  mine: {provider: offline, thinking: low}\n"
            "  a: {provider: openai, model: m, api_key: k, thinking: 3}\n"
        ),
        [
            "2:39: models.mine.thinking: the offline model does not think; expected no `thinking`",
            "3:57: models.a.thinking: 3 is not a choice; expected 'off', 'low', 'medium' or 'high'",
        ],
    ),
    "a price of the cache alone": (
        (
            "models:\n  a: {provider: openai, model: m, base_url: http://127.0.0.1:1/v1,\n"
            "      cached_input_usd_per_million: 1}\n"
        ),
        [
            (
                "3:37: models.a.cached_input_usd_per_million: the other prices are missing; expected `input_` and "
                "`output_usd_per_million`, too"
            )
        ],
    ),
    "a budget of dollars for models whose price nobody knows": (
        (
            "models:\n  mine: {provider: openai, model: m, base_url: http://127.0.0.1:1/v1}\n"
            "  theirs: {provider: openai, model: gpt-5.4-mini, api_key: k}\n"
            "  newest: {provider: anthropic, model: unheard-of, api_key: k}\nbudgets: {user: {usd: 1}}\n"
        ),
        [
            f"{place}: the price of this model is unknown, and a budget limits money; expected "
            "`input_usd_per_million` and `output_usd_per_million` (0 for a model of your own)"
            for place in ("2:3: models.mine", "4:3: models.newest")
        ],
    ),
    "budgets that are none": (
        (
            "budgets:\n  time_zone: Mars/Olympus\n  user: {turns: -1}\n  gateway: {eur: 3}\n"
            "  personalities: {pirate: {turns: 1}, assistent: {turns: 1}}\n"
        ),
        [
            (
                "2:14: budgets.time_zone: no time zone of this machine; expected a name such as Europe/Berlin or UTC "
                "(`pip install tzdata` brings all of them)"
            ),
            "3:17: budgets.user.turns: -1 is too small; expected at least 0",
            "4:13: budgets.gateway.eur: unknown key; expected one of turns, tokens, usd",
            (
                "5:19: budgets.personalities.pirate: there is no personality 'pirate'; expected one of assistant, "
                "engineer, researcher"
            ),
            (
                "5:39: budgets.personalities.assistent: there is no personality 'assistent' (did you mean "
                "`assistant`?); expected one of assistant, engineer, researcher"
            ),
        ],
    ),
    "an unknown key at the top": (
        "colour: red\n",
        [
            (
                "1:1: colour: unknown key; expected one of model, models, personality, session_scope, time_zone, "
                "channels, web, store, worker, memory, tools, approvals, sandbox, skills, schedules, mcp, hooks, "
                "heartbeat, speech, limits, budgets, delivery, log, retention, telemetry, secret, shutdown_s"
            )
        ],
    ),
    "an unknown key of a model": (
        CLOUD + "    apikey: k\n",
        [
            (
                "6:5: models.cloud.apikey: unknown key (did you mean `api_key`?); expected one of provider, "
                "model, base_url, api_key, timeout_s, silence_s, max_retries, fallbacks, input_usd_per_million, "
                "output_usd_per_million, cached_input_usd_per_million, cache_write_usd_per_million, max_output_tokens, "
                "sees_images, thinking"
            )
        ],
    ),
    "one key twice": (
        "web:\n  port: 1\n  port: 2\n",
        ["3:3: web.port: this key stands twice, first in line 2; expected it once"],
    ),
    "a model without its name and key": (
        "models:\n  claude:\n    provider: anthropic\n",
        [
            "2:3: models.claude.model: missing; expected the provider's name of the model",
            ("2:3: models.claude.api_key: missing; expected `${ENV_VAR}`, `{file: path}` or `{keyring: name}`"),
        ],
    ),
    "a model without a provider": (
        "models:\n  cloud:\n    model: m\n",
        ["2:3: models.cloud.provider: missing; expected a value here"],
    ),
    "an address that is none": (
        CLOUD + "    base_url: localhost:11434\n",
        ["6:15: models.cloud.base_url: not a web address; expected one such as http://127.0.0.1:11434/v1"],
    ),
    "an address with a password in it": (
        CLOUD + "    base_url: https://ada:canary@example.org/v1\n",
        [("6:15: models.cloud.base_url: the address holds a password; expected it without, and the key in `api_key`")],
    ),
    "a variable that is not set": (
        "models:\n  cloud:\n    provider: openai\n    model: m\n    api_key: ${NOT_SET}\n",
        [
            (
                "5:14: models.cloud.api_key: the environment variable NOT_SET is not set; expected "
                "`export NOT_SET=…` before start"
            )
        ],
    ),
    "a variable without a name": (
        "web:\n  host: ${}\n",
        [
            (
                "2:9: web.host: `${` without the name of an environment variable; expected `${NAME}`, or `$${` "
                "for the characters `${`"
            )
        ],
    ),
    "a variable whose value does not fit is not shown": (
        "web:\n  port: ${SECRET_PORT}\n",
        ["2:9: web.port: the value is not a whole number; expected a whole number"],
    ),
    "a variable that names no model": (
        "model: ${GOOD}\n",
        ["1:8: model: ${GOOD} names no model; expected one of offline"],
    ),
    "a secret that is empty": (
        "models:\n  cloud:\n    provider: openai\n    model: m\n    api_key: ${EMPTY}\n",
        ["5:14: models.cloud.api_key: the secret is empty; expected a value, or no such key at all"],
    ),
    "a secret in two places": (
        "models:\n  cloud:\n    provider: openai\n    model: m\n    api_key: {file: a, keyring: b}\n",
        [
            (
                "5:14: models.cloud.api_key: not a secret; expected text, `${ENV_VAR}`, `{file: path}` or "
                "`{keyring: name}`"
            )
        ],
    ),
    "a secret that is a number": (
        "models:\n  cloud:\n    provider: openai\n    model: m\n    api_key: 90210\n",
        [
            (
                "5:14: models.cloud.api_key: not a secret; expected text, `${ENV_VAR}`, `{file: path}` or "
                "`{keyring: name}`"
            )
        ],
    ),
    "a default model that there is not": (
        "model: clod\n" + CLOUD,
        ["1:8: model: there is no model 'clod' (did you mean `cloud`?); expected one of offline, cloud"],
    ),
    "a fallback that there is not": (
        CLOUD + "    fallbacks: [offline, lokal]\n",
        ["6:26: models.cloud.fallbacks[1]: there is no model 'lokal'; expected one of offline, cloud"],
    ),
    "fallbacks in a circle": (
        CLOUD + "    fallbacks: [other]\n  other:\n    provider: openai\n    model: m\n    api_key: k\n"
        "    fallbacks:\n      - cloud\n",
        [("12:9: models.other.fallbacks[0]: falls back in a circle (cloud → other → cloud); expected an end")],
    ),
    "a fallback on itself": (
        CLOUD + "    fallbacks: [cloud]\n",
        ["6:17: models.cloud.fallbacks[0]: falls back in a circle (cloud → cloud); expected an end"],
    ),
    "another model under the offline one's name": (
        "models:\n  offline:\n    provider: openai\n    model: m\n    api_key: k\n",
        ["2:3: models.offline: this name is kept for the offline model; expected another name"],
    ),
    "a model's name with a blank": (
        "models:\n  my model:\n    provider: offline\n",
        [("2:3: models.my model: 'my model' is not a model's name; expected 1 to 64 of A-Z a-z 0-9 . _ : / -")],
    ),
    "a personality that there is not": (
        "personality: assistent\n",
        [
            (
                "1:14: personality: there is no personality 'assistent' (did you mean `assistant`?); expected "
                "one of assistant, engineer, researcher"
            )
        ],
    ),
    "a channel's personality that there is not": (
        f"channels:\n  loft:\n    kind: {PIGEON}\n    ring: ${{GOOD}}\n    personality: poet\n",
        [
            (
                "5:18: channels.loft.personality: there is no personality 'poet'; expected one of assistant, "
                "engineer, researcher"
            )
        ],
    ),
    "a channel without a kind": (
        "channels:\n  loft:\n    enabled: true\n",
        ["2:3: channels.loft.kind: missing; expected one of KINDS, or a package with a dot in its name"],
    ),
    "a channel that only its name says the kind of, misspelt": (
        "channels:\n  telegarm:\n    token: x\n    access: opne\n",
        [
            (
                "2:3: channels.telegarm.kind: missing (did you mean `telegram`?); expected one of KINDS, or a package "
                "with a dot in its name"
            ),
            (
                "4:13: channels.telegarm.access: 'opne' is not a choice; expected 'owner', 'allowlist', 'pairing' or "
                "'open'"
            ),
        ],
    ),
    "a channel that is no section": (
        "channels:\n  loft: pigeon\n",
        ["2:9: channels.loft: 'pigeon' is not a section; expected `kind: …` and the channel's keys"],
    ),
    "channels as a list": (
        "channels:\n  - kind: telegram\n",
        [("2:3: channels: a list is not a section of `key: value` lines; expected a section of `key: value` lines")],
    ),
    "a channel's name that could lead out of a directory": (
        "channels:\n  ../etc:\n    kind: telegram\n    enabled: false\n",
        ["2:3: channels.../etc: '../etc' is not a channel's name; expected 1 to 64 of A-Z a-z 0-9 _ -"],
    ),
    "a kind that is no name": (
        "channels:\n  loft:\n    kind: ../../pigeon\n",
        [
            (
                "3:11: channels.loft.kind: '../../pigeon' is not the name of a kind; expected one of KINDS, or "
                "a package with a dot in its name"
            )
        ],
    ),
    "a kind that there is not": (
        "channels:\n  home:\n    kind: telegarm\n",
        [
            (
                "3:11: channels.home.kind: there is no kind 'telegarm' (did you mean `telegram`?); expected one of "
                "KINDS, or a package with a dot in its name"
            )
        ],
    ),
    "a third party's kind that there is not": (
        "channels:\n  loft:\n    kind: no_such.pigeons\n",
        [
            (
                "3:11: channels.loft.kind: there is no package 'no_such.pigeons' here; expected one that is installed, "
                "or one of KINDS"
            )
        ],
    ),
    "a third party's kind whose library is missing": (
        "channels:\n  loft:\n    kind: tests.gateway.config.kinds.needs_missing\n",
        [
            (
                "3:11: channels.loft.kind: tests.gateway.config.kinds.needs_missing needs "
                "a_library_that_nobody_has, which is not installed; expected a_library_that_nobody_has beside tests"
            )
        ],
    ),
    "a third party's kind that fails": (
        "channels:\n  loft:\n    kind: tests.gateway.config.kinds.explodes\n",
        [
            (
                "3:11: channels.loft.kind: tests.gateway.config.kinds.explodes cannot be loaded (RuntimeError: "
                "the coop is on fire); expected a package that imports"
            )
        ],
    ),
    "a package that is no kind": (
        "channels:\n  loft:\n    kind: tests.gateway.config.kinds.no_adapter\n",
        [
            (
                "3:11: channels.loft.kind: tests.gateway.config.kinds.no_adapter is no adapter; expected "
                "`Config` (a pydantic model) and `build` in it"
            )
        ],
    ),
    "wrong keys of the core's and of the adapter's own": (
        f"channels:\n  loft:\n    kind: {PIGEON}\n    access: closed\n    sped_kmh: 3\n    loft: {{latitude: north}}\n",
        [
            "2:3: channels.loft.ring: missing; expected a value here",
            "4:13: channels.loft.access: 'closed' is not a choice; expected 'owner', 'allowlist', 'pairing' or 'open'",
            (
                "5:5: channels.loft.sped_kmh: unknown key (did you mean `speed_kmh`?); expected one of ring, "
                "speed_kmh, motto, loft, spare_rings, escort"
            ),
            "6:22: channels.loft.loft.latitude: 'north' is not a number; expected a number",
        ],
    ),
    "a wrong key in a choice of sections": (
        (
            f"channels:\n  loft:\n    kind: {PIGEON}\n    ring: ${{GOOD}}\n    escort:\n      bird: falcon\n"
            "      bells: many\n"
        ),
        ["7:14: channels.loft.escort.bells: 'many' is not a whole number; expected a whole number"],
    ),
    "a tab": ("web:\n\tport: 1\n", ["2:1: a tab; expected spaces"]),
    "two colons in a line": (
        "model: a: b\n",
        ["1:9: a second `: ` in a line, or a wrong indent; expected quotes around such text"],
    ),
    "a bracket that is never closed": (
        "web:\n  allowed_hosts: [a, b\n",
        ["3:1: a `[` or `{` that is never closed; expected `,` or its end"],
    ),
    "a quote that is never closed": (
        "model: 'x\n",
        ["2:1: a quote that is never closed; expected its end"],
    ),
    "keys that do not line up": (
        "web:\n  port: 1\n host: x\n",
        ["3:2: the indentation does not fit; expected the keys of one section in one column"],
    ),
    "a list at the top": ("- model\n", ["1:1: not a mapping; expected `key: value` lines"]),
    "prose": ("hello there\n", ["1:1: not a mapping; expected `key: value` lines"]),
    "a NUL": (b"model: off\0line\n", ["1:11: a NUL character; expected text"]),
    "a NUL by an escape": (
        'web:\n  host: "a\\0b"\n',
        [("2:9: web.host: a NUL or half a character; expected text")],
    ),
    "not UTF-8": (b"# \xc3\xa9\nmodel: caf\xe9\n", ["2:11: byte 0xe9 is not UTF-8; expected UTF-8 text"]),
    "an alias": (
        "web: &w\n  port: 1\nlog: *w\n",
        ["1:6: `&w`; expected no anchors and aliases"],
    ),
    "a tag": (
        "model: !!python/name:os.system x\n",
        [
            (
                "1:8: the tag `tag:yaml.org,2002:python/name:os.system`; expected no tags (quote a text that "
                "begins with `!`)"
            )
        ],
    ),
    "two documents": (
        "model: offline\n---\nmodel: offline\n",
        [("2:1: a second document; expected only one, without `---`")],
    ),
    "nested without end": (
        "[" * 100_000,
        ["1:41: nested too deep; expected at most 40 levels"],
    ),
    "a secret that is too short": (
        'secret: "canary-c2VjcmV0"\n',
        [f"1:9: secret: holds 11 bytes; {A_SECRET}"],
    ),
    "a secret of too few hex characters": (
        f'secret: "{"0123456789abcdef" * 3}"\n',
        [f"1:9: secret: 48 hex characters; {A_SECRET}"],
    ),
    "a secret that is a sentence": (
        "secret: canary, a long sentence that nobody would guess\n",
        [f"1:9: secret: neither hex nor base64; {A_SECRET}"],
    ),
    "a secret of the environment that is none": (
        "secret: ${SECRET_PORT}\n",
        [f"1:9: secret: holds 8 bytes; {A_SECRET}"],
    ),
    "a secret that is a placeholder": (
        f'secret: "{"00" * 32}"\n',
        [f"1:9: secret: not random; {A_SECRET}"],
    ),
    "the secret of all keys as a number": (
        "secret: 12\n",
        ["1:9: secret: not a secret; expected text, `${ENV_VAR}`, `{file: path}` or `{keyring: name}`"],
    ),
    "a secret whose variable is not set": (
        "secret: ${NO_SECRET}\n",
        ["1:9: secret: the environment variable NO_SECRET is not set; expected `export NO_SECRET=…` before start"],
    ),
    "larger than any person writes": (
        "#" * (1 << 20) + "\n",
        ["1:1: larger than 1048576 bytes; expected a file that people write by hand"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_a_broken_file_is_refused_with_line_column_and_what_was_expected(
    text: str | bytes, expected: list[str], write_config: Callable[[str | bytes], Path]
) -> None:
    path = write_config(text)
    expected = ["config.yaml:" + line.replace("KINDS", ", ".join(known_kinds())) for line in expected]
    with pytest.raises(ConfigError) as caught:
        load_config(path, environment=ENVIRONMENT)
    assert caught.value.problems == expected
    assert list(check(path, environment=ENVIRONMENT).problems) == expected
    assert "canary" not in str(caught.value)


def test_all_errors_are_reported_at_once_in_the_order_of_the_file(write_config) -> None:
    path = write_config(
        "model: none\nweb:\n  port: x\n  port: 3\n  hots: y\nlog: {level: loud}\n"
        "models:\n  a:\n    provider: anthropic\n    fallbacks: [b]\n"
        "channels:\n  t:\n    kind: tests.gateway.config.kinds.pigeon\n    ring: ${NO}\n    enabled: perhaps\n"
    )
    problems = check(path, environment={}).problems
    assert [problem.split(": ")[0].removeprefix("config.yaml:") for problem in problems] == [
        "1:8", "3:9", "4:3", "5:3", "6:14", "8:3", "8:3", "10:17", "14:11", "15:14",
    ]  # fmt: skip


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    assert check(tmp_path / "config.yaml").problems == ("config.yaml:1:1: not a file; expected a text file in YAML",)


@pytest.mark.parametrize("key", [None, "", "  "])
def test_a_model_of_a_provider_without_a_key_is_refused(key: str | None) -> None:
    with pytest.raises(ValidationError, match="missing; expected"):
        ModelConfig(provider="openai", model="gpt", api_key=key)
    assert ModelConfig(provider="openai", model="gpt", api_key=key, base_url="http://127.0.0.1:1/v1").model == "gpt"
