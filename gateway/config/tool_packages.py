"""From `tools.packages` to the modules behind it: only one that is named there counts, installed or not."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from gateway.config.packages import Kind, KindUnusable, Packages

PLUGIN_API = 1
"""The version of plugins that a package says it was made for."""
GROUP = "ethos_gateway"
"""The entry point group under which a package says that it has tools."""
_PACKAGES = Packages(None, maker="tools", what="package of tools")


class ToolPackage(Kind):
    """A module with tools: `PLUGIN_API`, `Config` (a pydantic model), and `tools(config, services)`."""

    def tools(self, settings: Any, services: object) -> Any:
        """Make the tools, see `gateway.tools.contract`; `settings` is an instance of `config`."""
        return self.module.tools(settings, services)


def load_tool_package(name: str) -> ToolPackage:
    """Load the module of a package.

    Raises:
        KindUnusable: says whether it is not installed, a library is missing, or it is broken or of another version.
    """
    module = _PACKAGES.load(name)
    check_version(name, module)
    return ToolPackage(name, module)


def check_version(name: str, module: ModuleType) -> None:
    """Whether a package was made for this version of plugins.

    Raises:
        KindUnusable: it was not.
    """
    made_for = getattr(module, "PLUGIN_API", None)
    if made_for != PLUGIN_API:
        said = "does not say for which version of plugins it was made" if made_for is None else f"is for {made_for!r}"
        raise KindUnusable(f"{name} {said}; expected `PLUGIN_API = {PLUGIN_API}` in it, or another version of it")


def installed_packages() -> Sequence[str]:
    """What is installed here and says that it has tools, whether it is named in the configuration or not."""
    return sorted({found.value.partition(":")[0] for found in entry_points(group=GROUP)})
