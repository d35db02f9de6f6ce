"""From `web.search.kind` to the module behind it. Only the one that is configured is loaded."""

from __future__ import annotations

from typing import Any

from gateway.config.packages import Kind, Packages
from gateway.config.tool_packages import check_version

PACKAGES = Packages("gateway.tools.web.kinds", maker="search", what="search service")


class SearchKind(Kind):
    """A module that searches the web: `Config` (a pydantic model), and `search(config)`."""

    def search(self, settings: Any) -> Any:
        """What asks it, see `Search` in `gateway.tools.contract`; `settings` is an instance of `config`."""
        return self.module.search(settings)


def load_search_kind(kind: str) -> SearchKind:
    """Load the module of a kind; a dotted one is a third party's, and says for which version of plugins it was made.

    Raises:
        KindUnusable: says whether the kind is unknown, a library is missing, or the package is broken.
    """
    module = PACKAGES.load(kind)
    if "." in kind:
        check_version(kind, module)
    return SearchKind(kind, module)
