"""From a channel's `kind` to the package that speaks to the platform. Only the kinds that are configured are loaded."""

from __future__ import annotations

from typing import Any, Literal, get_args

from gateway.config.channel_setup import KindSetup, find_setup
from gateway.config.packages import Kind, Packages
from gateway.protocols import AdapterServices, ChannelAdapter, Trial

Access = Literal["owner", "allowlist", "pairing", "open"]
GroupAccess = Literal["nobody", "owner", "allowlist", "pairing", "open"]

ACCESS_DEFAULT: Access = "pairing"

_PACKAGES = Packages("adapters", maker="build", what="adapter")


class ChannelKind(Kind):
    """A package that adapts one platform: `Config` (a pydantic model), and `build(config, services)`.

    It may have `ACCESS_DEFAULT`, and `account(entry)`: what an entry of `allow` means, in the form that messages carry,
    or a ValueError that says what was expected; and `own_accounts(config)`: as whom a channel speaks, one text for
    each login that only one channel can have. Those are compared, and never shown. `public_host(config)` is the name
    under which its platform calls the gateway. `async def trial(config)` asks the platform who a login is; see
    `gateway.protocols.Trial`. `setup/` beside its `__init__.py` has the steps of the platform's own console; see
    `gateway.config.channel_setup`.
    """

    @property
    def access_default(self) -> Access:
        """Who may talk where the configuration does not say; only who is let in, unless the package says otherwise."""
        default = getattr(self.module, "ACCESS_DEFAULT", None)
        return next((mode for mode in get_args(Access) if mode == default), ACCESS_DEFAULT)

    def account(self, entry: str) -> str:
        """What an entry of `allow` means, in the form that messages carry.

        Raises:
            ValueError: it matches no account; says what was expected.
        """
        if hasattr(self.module, "account"):
            return str(self.module.account(entry))
        if entry.startswith("*"):
            raise ValueError("no patterns here; expected the platform's own id of a person, or `access: open`")
        return entry

    def own_accounts(self, settings: Any) -> frozenset[str]:
        """The logins that a channel with these settings must have for itself; empty where the package names none."""
        found = self.module.own_accounts(settings) if hasattr(self.module, "own_accounts") else ()
        return frozenset(f"{self.module.__name__} {account}" for account in found)

    def public_host(self, settings: Any) -> str | None:
        """The name under which the platform calls the gateway; None where it does not, or where it is not known."""
        host = self.module.public_host(settings) if hasattr(self.module, "public_host") else None
        return None if host is None else str(host)

    @property
    def has_trial(self) -> bool:
        """Whether a login can be tried without a channel."""
        return hasattr(self.module, "trial")

    async def trial(self, settings: Any) -> Trial:
        """Ask the platform who a login is; see `Trial`. Only where `has_trial`.

        Raises:
            AdapterNotReady: the platform cannot be asked now.
            AdapterAuthFailed: it does not take the login.
        """
        found: Trial = await self.module.trial(settings)
        return found

    def build(self, settings: Any, services: AdapterServices) -> ChannelAdapter:
        """Make the adapter of one channel; `settings` is an instance of `config`."""
        adapter: ChannelAdapter = self.module.build(settings, services)
        return adapter


def known_kinds() -> list[str]:
    """The kinds that come with the gateway; finding them loads none."""
    return _PACKAGES.known()


def load_kind(kind: str) -> ChannelKind:
    """Load the package of a kind: `name` is `adapters.name`, a dotted one is a third party's.

    Raises:
        KindUnusable: says whether the kind is unknown, a library is missing, or the package is broken.
    """
    return ChannelKind(kind, _PACKAGES.load(kind))


def setup_of(kind: str) -> KindSetup | None:
    """The steps to a login of this kind, where its package brings them; loads no package. Blocks.

    Raises:
        ConfigError: they cannot be read; says why.
    """
    return find_setup(_PACKAGES, kind)


def expected_kinds() -> str:
    """For an error: what a kind may be."""
    return _PACKAGES.expected()
