"""Models: which there are and how they do, what a server offers, what one answers when it is tried."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import SecretStr, ValidationError

from gateway.agent.model_states import ModelStates
from gateway.agent.providers.models import WireModel
from gateway.agent.providers.trial import Offer, Trial, ask_configured, ask_once, offered, whole_address
from gateway.config import HELPER, OFFLINE, Config, LiveConfig, ModelConfig
from gateway.config.editing import REMOVED, Changes, Secret
from gateway.domain.personalities import Personalities, Personality
from gateway.errors import ConfigError, ModelError, ModelUnavailable
from gateway.files.positions.validation import did_you_mean
from gateway.files.positions.yaml import KeyPath
from gateway.sdk.models import models as wire
from gateway.sdk.models.system import ModelHealth
from gateway.services.caller import Caller, Malformed, NotFound, Refused
from gateway.services.config_writing import ConfigWriting

_NAME = "model"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ANY = "any"
_KEY_MISSING = "missing; type the key, or `${NAME}` for a variable of the gateway"
_ADVICE: Mapping[str, str] = {
    "base_url": "Start the server, or correct the address.",
    "api_key": "Type the key again, or make another one.",
    "model": "Correct the address, most end in /v1, or choose another model.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """What came of a question.

    Attributes:
        error: None where there is an answer.
    """

    trial: Trial | None = None
    base_url: str | None = None
    error: str | None = None
    about: Literal["base_url", "api_key", "model"] | None = None


class ModelService:
    """The operator's; a key may list the models."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        states: ModelStates,
        personalities: Personalities,
        hide: Callable[[str], str],
        writing: ConfigWriting,
    ) -> None:
        """`hide` strikes secrets from a text; `writing` changes config.yaml."""
        self._config = config
        self._states = states
        self._personalities = personalities
        self._hide = hide
        self._writing = writing
        self._answered: tuple[str, str | None, str | None] | None = None  # what answered last when it was tried

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def listed(self, caller: Caller) -> Sequence[wire.ConfiguredModel]:
        """All of the configuration, in its order.

        Raises:
            NotAllowed: the caller sees one person only.
        """
        caller.refuse_others(None)
        config = self._config.current
        await self._personalities.refresh()
        named = await asyncio.to_thread(self._named_by_personalities)
        states = {one.name: one for one in self._states.statuses}
        return [
            self._listed_one(name, config, (*_uses(config, name), *named.get(name, ())), states.get(name))
            for name in config.models
        ]

    def _listed_one(
        self, name: str, config: Config, used_by: Sequence[str], state: ModelHealth | None
    ) -> wire.ConfiguredModel:
        model = config.models[name]
        return wire.ConfiguredModel(
            name=name,
            provider=model.provider,
            model=model.model,
            base_url=model.base_url,
            has_key=model.api_key is not None,
            is_default=name == config.model,
            used_by=tuple(used_by),
            state=state.state if state else "unknown",
            since=state.since if state else None,
            last_answer_at=state.last_answer_at if state else None,
            error=self._hide(state.error) if state and state.error else None,
            unthought=state.unthought if state else None,
        )

    def _named_by_personalities(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for one in self._personalities.list():
            if isinstance(one, Personality) and one.model is not None:
                found.setdefault(one.model, []).append(f"personality {one.id}")
        return found

    # ---- trying -----------------------------------------------------------------------------------------------------

    async def offered(self, caller: Caller, place: wire.ModelPlace) -> wire.OfferedModels:
        """What a server offers.

        Raises:
            NotAllowed: it is the operator's only.
            Malformed: the server cannot be asked so; says which value is wrong.
        """
        caller.refuse_keys()
        model = self._entry(wire.ModelToTry(**dict(place), model=_ANY))
        try:
            found = await _offer(model)
        except ModelError as error:
            text = _advised(error, model)
            raise Malformed(text, {error.about or "base_url": text}) from error
        models = None if found.models is None else tuple(found.models)
        return wire.OfferedModels(base_url=found.base_url, models=models)

    async def tried(self, caller: Caller, model: wire.ModelToTry) -> wire.ModelTrial:
        """What a model answers that is not in the configuration yet.

        Raises:
            NotAllowed: it is the operator's only.
            Malformed: a value is wrong whatever the server says.
            NotFound: there is no model of which to take the key.
        """
        caller.refuse_keys()
        tried = await self._try(self._entry(model))
        if tried.trial is not None:
            self._answered = model.provider, tried.base_url, model.model
        return _shown(tried)

    async def tested(self, caller: Caller, name: str) -> wire.ModelTrial:
        """What a model of the configuration answers; what comes of it is its state.

        Raises:
            NotAllowed: it is the operator's only.
            NotFound: there is no such model.
        """
        caller.refuse_keys()
        model = self._find(name)
        try:
            trial = await ask_configured(self._config.current, name)
        except (ModelError, ConfigError) as error:
            about = error.about if isinstance(error, ModelError) else None
            self._states.failed(name, ModelUnavailable(str(error)))
            return _shown(_Tried(base_url=model.base_url, error=self._hide(str(error)), about=about))
        self._states.answered(name)
        return _shown(_Tried(trial=trial, base_url=model.base_url))

    async def _try(self, model: ModelConfig) -> _Tried:
        """Ask for the list first: that says at once whether the server is there, and at which address."""
        try:
            found = await _offer(model)
        except ModelError as error:
            return _Tried(base_url=model.base_url, error=_advised(error, model), about=error.about)
        model = model.model_copy(update={"base_url": found.base_url})
        try:
            return _Tried(trial=await ask_once(_wired(model)), base_url=found.base_url)
        except ModelError as error:
            is_elsewhere = error.about == "model" and found.models is None and model.base_url is not None
            about = "base_url" if is_elsewhere else error.about
            return _Tried(base_url=found.base_url, error=_advised(error, model, found), about=about)

    # ---- changing ---------------------------------------------------------------------------------------------------

    async def added(self, caller: Caller, new: wire.NewModel) -> wire.ModelChange:
        """Write a model into config.yaml, and use it; its key goes into a file of its own.

        Raises:
            NotAllowed: it is the operator's only.
            Malformed: a value is wrong.
            NotFound: there is no model of which to take the key.
            Refused: there is one of that name, or the configuration cannot be changed so.
        """
        caller.refuse_keys()
        if new.name in self._config.current.models:
            text = f"There is a model {new.name} already; change it, or take another name."
            raise Malformed(text, {"name": text})
        self._entry(new)
        key = self._written_key(new)
        entry = {**_values(new), **({"api_key": key} if key else {})}
        changes: dict[KeyPath, Any] = {("models", new.name): entry}
        if new.is_default:
            changes[("model",)] = new.name
        return await self._write(new.name, changes)

    async def changed(self, caller: Caller, name: str, changed: wire.ChangedModel) -> wire.ModelChange:
        """Give a model of config.yaml other values; those that `changed` does not know stay. Raises as `added`."""
        caller.refuse_keys()
        self._refuse_offline(name)
        self._entry(changed)
        values = _values(changed)
        changes: dict[KeyPath, Any] = {
            ("models", name, key): values.get(key, REMOVED) for key in ("provider", "model", "base_url")
        }
        if changed.api_key or changed.key_of != name:
            changes[("models", name, "api_key")] = self._written_key(changed) or REMOVED
        return await self._write(name, changes)

    async def used(self, caller: Caller, name: str) -> wire.ModelChange:
        """Make a model the default; raises as `added`."""
        caller.refuse_keys()
        self._find(name)
        return await self._write(name, {("model",): name})

    async def removed(self, caller: Caller, name: str) -> wire.ModelChange:
        """Take a model out of config.yaml.

        Raises:
            NotAllowed: it is the operator's only.
            NotFound: there is no such model.
            Refused: something needs it, or the configuration cannot be changed.
        """
        caller.refuse_keys()
        self._refuse_offline(name)
        one = next(one for one in await self.listed(caller) if one.name == name)
        if one.is_default or one.used_by:
            uses = ", ".join([*(["the default"] if one.is_default else []), *one.used_by])
            raise Refused(f"{name} is in use ({uses}); choose another model there first")
        return await self._write(name, {("models", name): REMOVED})

    async def _write(self, name: str, changes: Changes) -> wire.ModelChange:
        done = await self._writing.write(changes)
        model = self._config.current.models.get(name)
        if model is not None and self._answered == (model.provider, model.base_url, model.model):
            self._states.answered(name)
        return wire.ModelChange(model=name, is_in_use=done.is_in_use, notes=tuple(done.notes))

    def _refuse_offline(self, name: str) -> None:
        if self._find(name).provider == OFFLINE:
            raise Refused(f"{name} is the offline demo model, which is always there; make another one the default")

    def _written_key(self, wanted: wire.ModelToTry) -> Secret | str | None:
        """As it is to stand in the file: a variable as such, all else in a file of its own."""
        typed = (wanted.api_key or "").strip()
        if _VARIABLE.fullmatch(typed):
            return typed
        key = typed or (self._kept_key(wanted, self._find(wanted.key_of)) if wanted.key_of is not None else None)
        return Secret(key) if key else None

    # ---- pieces -----------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> ModelConfig:
        models = self._config.current.models
        if name not in models:
            raise NotFound(f"there is no model {name} in `models`{did_you_mean(name, models)}")
        return models[name]

    def _entry(self, wanted: wire.ModelToTry) -> ModelConfig:
        """As it would stand in the configuration, with its key.

        Raises:
            Malformed: a value is wrong.
            NotFound: there is no model of which to take the key.
        """
        key: str | None = _followed(wanted.api_key or "")
        if not key and wanted.key_of is not None:
            key = self._kept_key(wanted, self._find(wanted.key_of))
        values = {"provider": wanted.provider, "base_url": wanted.base_url or None, "model": wanted.model.strip()}
        try:
            return ModelConfig.model_validate({**values, "api_key": SecretStr(key) if key else None})
        except ValidationError as error:
            raise _malformed(error) from error

    def _kept_key(self, wanted: wire.ModelPlace, saved: ModelConfig) -> str | None:
        """A key goes to no other address than the one that it was given for."""
        if saved.api_key is None:
            return None
        if (saved.provider, saved.base_url) != (wanted.provider, wanted.base_url or None):
            text = "The saved key is for another address; type the key for this one."
            raise Malformed(text, {"api_key": text})
        return saved.api_key.get_secret_value()


def _values(wanted: wire.ModelToTry) -> dict[str, Any]:
    """As they are to stand in the file, without the key."""
    values = {"provider": wanted.provider, "model": wanted.model.strip()}
    address = wanted.base_url
    if not address:
        return values
    return {**values, "base_url": whole_address(address) if wanted.provider == "openai" else address}


def _followed(key: str) -> str:
    """A key, or the value of the variable that it names.

    Raises:
        Malformed: there is no such variable.
    """
    named = _VARIABLE.fullmatch(key.strip())
    if named is None:
        return key.strip()
    if not (value := os.environ.get(named[1])):
        text = f"The gateway has no variable {named[1]}; type the key itself, or set the variable and start it again."
        raise Malformed(text, {"api_key": text})
    return value


def _wired(model: ModelConfig) -> WireModel:
    """Of values that a person typed.

    Raises:
        Malformed: it cannot work; says why.
    """
    try:
        return WireModel(_NAME, model)
    except ConfigError as error:
        text = "; ".join(one.partition(": ")[2] for one in error.problems)
        raise Malformed(text, {"api_key": text} if text.startswith("api_key") else {}) from error


async def _offer(model: ModelConfig) -> Offer:
    """Raises ModelError, and Malformed as `_wired`."""
    _wired(model)
    key = model.api_key and model.api_key.get_secret_value().strip()
    return await offered("anthropic" if model.provider == "anthropic" else "openai", model.base_url, key or None)


def _malformed(error: ValidationError) -> Malformed:
    """In the words of the form, by its fields."""
    problems: dict[str, str] = {}
    for one in error.errors():
        text = str(one.get("ctx", {}).get("error", one["msg"]))
        is_missing_key = one["loc"] == ("api_key",) and text.startswith("missing")
        problems[str(one["loc"][0])] = _KEY_MISSING if is_missing_key else text
    return Malformed("; ".join(f"{field}: {text}" for field, text in problems.items()), problems)


def _advised(error: ModelError, model: ModelConfig, found: Offer | None = None) -> str:
    """What went wrong, and what to do about it in a form."""
    said = str(error).partition("; check ")[0]
    for who in (f"{_NAME} ({model.model})", "models ()"):
        said = said.replace(who, "the server", 1)
    for who in ("the server: ", f"{_NAME}: "):
        said = said.removeprefix(who)
    advice = _ADVICE.get(error.about or "", "")
    if error.about == "model" and found is not None and found.models is not None:
        advice = f"Choose another model{did_you_mean(model.model, found.models)}."
    return f"{said[:1].upper()}{said[1:]}. {advice}".rstrip()


def _shown(tried: _Tried) -> wire.ModelTrial:
    trial = tried.trial or Trial(text="", seconds=0)
    return wire.ModelTrial(
        base_url=tried.base_url,
        is_answered=tried.trial is not None,
        text=trial.text,
        duration_s=round(trial.seconds, 3),
        input_tokens=trial.input_tokens,
        output_tokens=trial.output_tokens,
        cost_usd=trial.cost_usd,
        error=tried.error,
        about=tried.about,
    )


def _uses(config: Config, name: str) -> Iterator[str]:
    """What of the configuration uses a model, besides that it is the default."""
    yield from (f"fallback of {other}" for other, one in config.models.items() if name in one.fallbacks)
    if name == HELPER:
        yield "small work"
    if name == config.memory.traces.embeddings.model:
        yield "embeddings"
