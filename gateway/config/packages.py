"""From a kind to the module behind it: ours by a plain name, a third party's by one with a dot. Loaded when asked."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from dataclasses import dataclass
from types import ModuleType

from pydantic import BaseModel

from gateway.files.positions.validation import did_you_mean
from gateway.runtime.extras import how_to_install

_OWN = re.compile(r"[a-z][a-z0-9_]*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


class KindUnusable(Exception):
    """There is no such kind, or it cannot be loaded; the text is for people, after the key's name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A loaded module of one sort; a subclass says what it makes.

    Attributes:
        name: as the configuration says it.
    """

    name: str
    module: ModuleType

    @property
    def config(self) -> type[BaseModel]:
        """The model of the keys that are the kind's own."""
        model: type[BaseModel] = self.module.Config
        return model


@dataclass(frozen=True, slots=True)
class Packages:
    """The kinds of one sort. Each is a module with a `Config` (a pydantic model) and a function that makes one.

    Attributes:
        inside: the package with ours; None: there are none.
        maker: the name of the function.
        what: one makes, for an error.
    """

    inside: str | None
    maker: str
    what: str

    def known(self) -> list[str]:
        """The kinds that come with the gateway; finding them loads none."""
        if self.inside is None:
            return []
        spec = importlib.util.find_spec(self.inside)
        places = spec.submodule_search_locations if spec else None
        return sorted(module.name for module in pkgutil.iter_modules(places))

    def expected(self) -> str:
        """For an error: what a kind may be."""
        ours = f"one of {', '.join(self.known())}, or a package" if self.inside else "an installed package"
        return f"expected {ours} with a dot in its name"

    def module_name(self, kind: str) -> str | None:
        """Of the module of a kind, whether it is there or not; None where the text names no kind."""
        if self.inside is not None and _OWN.fullmatch(kind):
            return f"{self.inside}.{kind}"
        return kind if _DOTTED.fullmatch(kind) else None

    def load(self, kind: str) -> ModuleType:
        """Load the module of a kind.

        Raises:
            KindUnusable: says whether the kind is unknown, a library is missing, or the package is broken.
        """
        target, is_own = self.module_name(kind), bool(_OWN.fullmatch(kind))
        if target is None:
            shown = "an address" if "://" in kind else repr(kind)  # it may hold a password
            raise KindUnusable(f"{shown} is not the name of a kind; {self.expected()}")
        try:
            module = importlib.import_module(target)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if target == missing or target.startswith(f"{missing}."):
                if not is_own:
                    ours = f", or one of {', '.join(self.known())}" if self.inside else ""
                    text = f"there is no package {kind!r} here; expected one that is installed{ours}"
                    raise KindUnusable(text) from None
                near = did_you_mean(kind, self.known())
                raise KindUnusable(f"there is no kind {kind!r}{near}; {self.expected()}") from None
            remedy = how_to_install(kind, missing) if is_own else f"{missing} beside {target.partition('.')[0]}"
            raise KindUnusable(f"{kind} needs {missing}, which is not installed; expected {remedy}") from None
        except Exception as error:  # noqa: BLE001 (a third party's package may raise anything while it is imported)
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise KindUnusable(f"{target} cannot be loaded ({reason}); expected a package that imports") from None
        model = getattr(module, "Config", None)
        is_model = isinstance(model, type) and issubclass(model, BaseModel)
        if not is_model or not callable(getattr(module, self.maker, None)):
            text = f"{target} is no {self.what}; expected `Config` (a pydantic model) and `{self.maker}` in it"
            raise KindUnusable(text)
        return module
