"""`ethos init`: asks a few questions, writes a configuration that works, and shows the next step.

Everything is asked before anything is written, so that giving up half-way changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO
from urllib.parse import urlsplit

from pydantic import SecretStr, TypeAdapter, ValidationError
from rich.console import Console

from gateway.agent.providers.models import HTTP_LIBRARY, WireModel
from gateway.agent.providers.trial import TRIAL_S, Offer, ask_once, offered, whole_address
from gateway.config import OFFLINE, ModelConfig
from gateway.config.file import CONFIG_NAME
from gateway.config.machine_zone import zone_of_machine
from gateway.config.values import WebAddress
from gateway.domain.personalities import Personalities
from gateway.errors import ConfigError, FileError, ModelError
from gateway.files.atomic import make_private_directory, sync_directory, write_atomically, write_new
from gateway.files.positions.validation import did_you_mean
from gateway.runtime.extras import how_to_install

Provider = Literal["offline", "openai", "anthropic"]
KeyFrom = Literal["environment", "file", "nowhere"]

_OPENAI_ADDRESS = "https://api.openai.com/v1"
_PROVIDERS: tuple[tuple[Provider, str], ...] = (
    ("offline", "none for now: a small built-in program without key and network, good for a first look"),
    ("openai", "a server that speaks OpenAI's chat completions: OpenAI, OpenRouter, Ollama, vLLM, llama.cpp"),
    ("anthropic", "Anthropic"),
)
_KEY_SOURCES: tuple[tuple[KeyFrom, str], ...] = (
    ("environment", "an environment variable"),
    ("file", "a file in the data directory that only you may read; you type the key now"),
    ("nowhere", "the server needs no key"),
)
_DEFAULT_MODELS = {"openai": "gpt-5.4-mini", "anthropic": "claude-sonnet-5"}
_AFTER_FAILURE = ((False, "answer the questions about the model again"), (True, "keep the answers, and go on"))
_SHOWN_MODELS = 20
_SHOWN_CHARS = 80
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What was asked; the defaults are what pressing Enter throughout gives.

    Attributes:
        base_url: None for the provider's own service.
        key_variable: the environment variable that holds the key.
        key: to be put into a file; at most one of the two is given.
    """

    provider: Provider = "offline"
    model: str = ""
    base_url: str | None = None
    key_variable: str | None = None
    key: str | None = field(default=None, repr=False)
    personality: str = "assistant"
    port: int = 8420


def run_init(
    home: Path,
    *,
    force: bool = False,
    yes: bool = False,
    tries: bool = True,
    stdin: TextIO | None = None,
    console: Console | None = None,
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Ask, and write `config.yaml` and the data directory.

    Args:
        home: the data directory.
        force: replace a configuration that is there already; a copy of it stays in the directory.
        yes: ask nothing. So it is, too, when `stdin` is no terminal.
        tries: list the models of the server, and ask the chosen one for a word.
        stdin: where answers come from; the process's own when None.
        console: where questions and the next step are shown.
        environment: to say whether a key's variable is set; the process's own when None.

    Returns:
        The path of the configuration.

    Raises:
        ConfigError: there is a configuration already, or the input ended before all was asked. Nothing was written.
        FileError: the data directory cannot be written.
    """
    console = console or Console(highlight=False)
    source = sys.stdin if stdin is None else stdin
    path = home / CONFIG_NAME
    if os.path.lexists(path) and not force:
        raise ConfigError(
            [f"{path}: there already; nothing was changed. `ethos init --force` replaces it and keeps a copy"]
        )
    is_asking = not yes and source.isatty()
    environment = os.environ if environment is None else environment
    questions = _Questions(home, console, source, environment if tries else None)
    answers = questions.ask() if is_asking else Answers()
    copy = _write(home, path, answers)
    for line in _next_steps(path, copy, answers, environment):
        console.print(line, markup=False, soft_wrap=True)
    return path


class _Questions:
    """Asks on a terminal until each answer can be used."""

    def __init__(self, home: Path, console: Console, source: TextIO, environment: Mapping[str, str] | None) -> None:
        """With the environment, which may hold the key, models are tried; without one they are not."""
        self._environment = environment if importlib.util.find_spec(HTTP_LIBRARY) is not None else None
        self._personalities = Personalities(home).ids()
        self._console = console
        self._stream = None if source is sys.stdin else source

    def ask(self) -> Answers:
        self._say("A few questions, and it is ready. Enter takes the value in brackets.\n")
        provider = self._choice("Which model shall answer?", _PROVIDERS, default=1)
        model: dict[str, Any] = {}
        while provider != "offline":
            model = self._ask_model(provider)
            if self._is_kept(provider, **model):
                break
        return Answers(
            provider=provider,
            **model,
            personality=self._text(
                f"Who shall answer ({', '.join(self._personalities)})", "assistant", self._personality
            ),
            port=int(self._text("Port of the web page", "8420", _port)),
        )

    def _ask_model(self, provider: Provider) -> dict[str, Any]:
        base_url, is_local = None, False
        if provider == "openai":
            base_url = self._text("Address of the server", _OPENAI_ADDRESS, _address)
            is_local = urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")
            base_url = None if base_url.rstrip("/") == _OPENAI_ADDRESS else base_url
        names: Sequence[str] = ()
        if base_url:
            base_url, names = self._reached(base_url)
        model = self._ask_name("" if base_url else _DEFAULT_MODELS[provider], names)
        # Only a server of one's own may do without a key.
        sources = _KEY_SOURCES if base_url else _KEY_SOURCES[:2]
        source = self._choice("Where is the API key?", sources, default=3 if is_local else 1)
        answers: dict[str, Any] = {"model": model, "base_url": base_url}
        if source == "environment":
            default = f"{provider.upper()}_API_KEY"
            answers["key_variable"] = self._text("Name of the variable", default, _variable)
        elif source == "file":
            answers["key"] = self._text("The key (not shown)", "", _something, is_secret=True)
        return answers

    def _reached(self, address: str) -> tuple[str, Sequence[str]]:
        """The address with the `/v1` that it lacks, and the models that the server offers there."""
        found = Offer(base_url=whole_address(address), models=None)
        if self._environment is not None:
            with contextlib.suppress(ModelError):  # the question to the model itself says what is wrong
                found = asyncio.run(offered("openai", address, None))
            if found.models is None:
                self._say("  The server does not list its models.")
        if found.base_url != address:
            self._say(f"  The address is taken as {found.base_url}")
        return found.base_url or address, found.models or ()

    def _ask_name(self, default: str, offered: Sequence[str]) -> str:
        for number, name in enumerate(offered[:_SHOWN_MODELS], 1):
            self._say(f"  {number}  {name}")
        if not offered:
            return self._text("Name of the model, as the provider writes it", default, _something)
        if len(offered) > _SHOWN_MODELS:
            self._say(f"  … and {len(offered) - _SHOWN_MODELS} more")

        def pick(text: str) -> str:
            if text in offered:
                return text
            if text.isascii() and text.isdigit() and 1 <= int(text) <= min(len(offered), _SHOWN_MODELS):
                return offered[int(text) - 1]
            raise ValueError(f"the server does not offer it{did_you_mean(text, offered)}; a number or a name, please")

        return self._text("Number or name of the model", "1", pick)

    def _is_kept(
        self, provider: Provider, *, model: str, base_url: str | None, key_variable: str | None = None, key: str = ""
    ) -> bool:
        """Ask the model for a word, and say what it answered; whether the answers stay as they are."""
        if self._environment is None or provider == "offline":
            return True
        if key_variable is not None and not self._environment.get(key_variable):
            self._say(f"  The model is not asked now: {key_variable} is not set here. Later: `ethos doctor --ask`")
            return True
        self._say(f"Asking {model} for a word, {TRIAL_S:g} seconds at most …")
        api_key = key or (self._environment[key_variable] if key_variable else None)
        try:
            config = ModelConfig(
                provider=provider, model=model, api_key=SecretStr(api_key) if api_key else None, base_url=base_url
            )
            trial = asyncio.run(ask_once(WireModel("main", config)))
        except (ModelError, ConfigError) as error:
            self._say(f"  It did not answer. {error}")
            return bool(self._choice("What now?", _AFTER_FAILURE, default=1))
        self._say(f"  It answered in {trial.seconds:.1f} s: {trial.text[:_SHOWN_CHARS]}")
        return True

    def _choice(self, question: str, options: tuple[tuple[Any, str], ...], *, default: int) -> Any:
        self._say(question)
        for number, (_, text) in enumerate(options, 1):
            self._say(f"  {number}  {text}")

        def pick(text: str) -> str:
            if text not in map(str, range(1, len(options) + 1)):
                raise ValueError(f"a number from 1 to {len(options)}, please")
            return text

        return options[int(self._text("Number", str(default), pick)) - 1][0]

    def _personality(self, text: str) -> str:
        if text not in self._personalities:
            raise ValueError(f"there is none of that id{did_you_mean(text, self._personalities)}")
        return text

    def _text(self, question: str, default: str, accept: Callable[[str], str], *, is_secret: bool = False) -> str:
        """Ask until `accept` returns instead of raising ValueError, whose text says why."""
        prompt = f"{question} [{default}]: " if default else f"{question}: "
        while True:
            line = self._line(prompt, is_secret=is_secret)
            if not line:
                raise ConfigError(["the input ended before all was asked; nothing was written"])
            try:
                return accept(line.strip() or default)
            except ValueError as error:
                self._say(f"  {error}")

    def _line(self, prompt: str, *, is_secret: bool) -> str:
        """One line with its end; empty when the input has ended."""
        try:
            if self._stream is None:
                return self._console.input(prompt, markup=False, password=is_secret) + "\n"
            self._console.print(prompt, markup=False, soft_wrap=True, end="")
            return self._stream.readline()
        except (EOFError, UnicodeDecodeError):
            return ""

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


def _something(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("it cannot be left out, and must be one line of text")
    return text


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError("not the name of an environment variable: use letters, digits and _ (and not the key itself)")
    return text


def _port(text: str) -> str:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise ValueError("a number from 0 to 65535, please; 0 takes any free one")
    return text


def _address(text: str) -> str:
    try:
        address: str = TypeAdapter(WebAddress).validate_python(text)
    except ValidationError as error:
        context = error.errors()[0].get("ctx", {})
        raise ValueError(str(context.get("error", "not a web address"))) from None
    return address


def render_config(answers: Answers, key_file: str | None = None) -> str:
    """The text of a configuration, with comments.

    Args:
        answers: what to write.
        key_file: where the key lies, relative to the configuration.
    """
    is_offline = answers.provider == "offline"
    lines = [
        "# Written by `ethos init`. Every setting there is, with its default: config.example.yaml.",
        "# After a change: `ethos config check`.",
        "",
        "# Who answers: a model, as a personality.",
        f"model: {OFFLINE if is_offline else 'main'}",
        f"personality: {answers.personality}",
        "",
        *([] if is_offline else _model_lines(answers, key_file)),
        "# Where else people can write, besides the terminal and the web page: docs/channels.",
        "channels:",
        "",
        "web:",
        f"  port: {answers.port}",
        "",
        "# Whose clock is meant in reminders, where a person has chosen none with /timezone.",
        f"time_zone: {zone_of_machine()}",
    ]
    return "\n".join(lines) + "\n"


def _model_lines(answers: Answers, key_file: str | None) -> list[str]:
    key = f"${{{answers.key_variable}}}" if answers.key_variable else f"{{file: {key_file}}}" if key_file else None
    return [
        "models:",
        "  main:",
        f"    provider: {answers.provider}",
        f"    model: {_quoted(answers.model)}",
        *([f"    base_url: {_quoted(answers.base_url)}"] if answers.base_url else []),
        *([f"    api_key: {key}"] if key else []),
        "    # Asked instead when it cannot answer; `offline` is a small program, not a model.",
        "    #fallbacks: [offline]",
        "",
    ]


def _quoted(text: str) -> str:
    """Text as YAML has it in double quotes, with `${` as itself."""
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)


def _write(home: Path, path: Path, answers: Answers) -> Path | None:
    """Write everything; returns the copy of what was there before."""
    try:
        for directory in (home, home / "users", home / "personalities"):
            make_private_directory(directory)
        copy = _keep_copy(path)
        key_file = _write_key(home, answers) if answers.key else None
        write_atomically(path, render_config(answers, key_file).encode())
    except OSError as error:
        raise FileError(f"{error.filename or home} could not be written: {error.strerror}") from error
    return copy


def _keep_copy(path: Path) -> Path | None:
    try:
        with path.open("rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    return _write_free(path.parent, f"{path.name}.old", "", data)


def _write_key(home: Path, answers: Answers) -> str:
    directory = home / "secrets"
    make_private_directory(directory)
    path = _write_free(directory, answers.provider, ".key", f"{answers.key}\n".encode())
    return str(path.relative_to(home))


def _write_free(directory: Path, stem: str, suffix: str, data: bytes) -> Path:
    """Write a file under the first of `stem`, `stem-2`, `stem-3` … that is free."""
    number = 1
    while True:
        path = directory / f"{stem}{f'-{number}' if number > 1 else ''}{suffix}"
        with contextlib.suppress(FileExistsError):
            write_new(path, data)
            sync_directory(directory)
            return path
        number += 1


def _next_steps(path: Path, copy: Path | None, answers: Answers, environment: Mapping[str, str]) -> list[str]:
    lines = [f"Written: {path}"]
    if copy:
        lines.append(f"The old one is now {copy}")
    if (mode := path.parent.stat().st_mode & 0o077) != 0:
        lines.append(f"Other users may look into {path.parent} ({mode:03o}): `chmod 700 {path.parent}`")
    lines.append("\nNext:")
    if answers.provider != "offline" and importlib.util.find_spec(HTTP_LIBRARY) is None:
        lines.append("  " + how_to_install("models").strip("`"))
    if answers.key_variable and answers.key_variable not in environment:
        lines.append(f"  export {answers.key_variable}=…")
    page = f", the page at http://127.0.0.1:{answers.port}/" if answers.port else ""
    return [*lines, f"  ethos serve    the gateway{page}", "  ethos chat     in another terminal"]
