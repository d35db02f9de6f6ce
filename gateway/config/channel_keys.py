"""The keys of a kind of channel, as a form, a program or a command line asks for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

KeyType = Literal["text", "secret", "number", "switch", "choice", "list"]
_REFERENCES = ("file", "keyring")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelKey:
    """One key.

    Attributes:
        name: with dots where it stands in a section, such as `oauth.client_id`.
        choices: of a `choice`, all of them.
        default: None where there is none.
        is_common: everybody needs it.
    """

    name: str
    description: str
    type: KeyType
    choices: tuple[str, ...] = ()
    default: Any = None
    is_required: bool = False
    is_common: bool = False


def keys_of(model: type[BaseModel], common: Sequence[str]) -> Sequence[ChannelKey]:
    """All keys of a model: the common ones first, in that order, then the others in theirs."""
    found = {key.name: key for key in _keys(model, "", {*common}, is_optional=False)}
    first = {name: found[name] for name in common if name in found}
    return list({**first, **found}.values())


def _keys(model: type[BaseModel], section: str, common: Collection[str], *, is_optional: bool) -> Iterator[ChannelKey]:
    for name, field in model.model_fields.items():
        plain, key = _plain(field.annotation), section + (field.alias or name)
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            yield from _keys(plain, f"{key}.", common, is_optional=is_optional or not field.is_required())
            continue
        is_required = field.is_required() and not is_optional
        yield ChannelKey(
            name=key,
            description=field.description or "",
            type=_type(plain),
            choices=tuple(map(str, get_args(plain))) if get_origin(plain) is Literal else (),
            default=_default(field),
            is_required=is_required,
            is_common=key in common or is_required,
        )


def _plain(annotation: Any) -> Any:
    """The type without `| None` and without what is annotated."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain(arguments[0])
    if origin in (Union, UnionType):
        return _plain(next(argument for argument in arguments if argument is not type(None)))
    return annotation


def _type(plain: Any) -> KeyType:
    origin = get_origin(plain)
    if plain is SecretStr:
        return "secret"
    if plain is bool:
        return "switch"
    if plain in (int, float):
        return "number"
    if origin is Literal:
        return "choice"
    return "list" if origin in (tuple, list, set, frozenset) else "text"


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return None
    default = field.get_default(call_default_factory=True)
    return list(default) if isinstance(default, tuple) else default


def is_reference(value: Any) -> bool:
    """Whether the value of a secret key says where the secret is, and is none itself."""
    if isinstance(value, str):
        return "${" in value
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in _REFERENCES


def secret_names(keys: Sequence[ChannelKey]) -> frozenset[str]:
    """The keys that hold a secret."""
    return frozenset(key.name for key in keys if key.type == "secret")
