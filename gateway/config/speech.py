"""The configuration of speech: who hears what people record, and who says what the agent answers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gateway.config.packages import Kind, Packages
from gateway.config.tool_packages import check_version
from gateway.config.values import Seconds, Section, Text, Usd

LISTEN, SPEAK = "speech.listen", "speech.speak"
"""By these names the two are among the models: in `/usage`, in metrics, and for budgets."""
LISTENING = Packages("gateway.speech.listening", maker="listen", what="service that hears")
SPEAKING = Packages("gateway.speech.speaking", maker="speak", what="service that speaks")


class ServiceConfig(Section):
    """One of the two.

    Attributes:
        kind: one of ours, or a dotted name of a third party's package.
        usd_per_minute: of speech; needed where a budget limits money.
        timeout_s: for one recording, or one answer.
        settings: the kind's own `Config`; None where it cannot be used.
        fault: why it cannot be used, and is left out; empty where it can.
    """

    kind: Text = "openai"
    usd_per_minute: Usd | None = None
    timeout_s: Seconds = 60
    settings: Any = Field(default=None, exclude=True)
    fault: str = Field(default="", exclude=True)


class SpeechConfig(Section):
    """Speech; None: there is none.

    Attributes:
        listen: hears what people record.
        speak: says what the agent answers.
    """

    listen: ServiceConfig | None = None
    speak: ServiceConfig | None = None

    def named(self, name: str) -> ServiceConfig | None:
        """The one that has this name among the models."""
        return {LISTEN: self.listen, SPEAK: self.speak}.get(name)


class SpeechKind(Kind):
    """A module of either sort: `Config` (a pydantic model), and `listen(config)` or `speak(config)`."""

    def made(self, maker: str, settings: Any) -> Any:
        """What hears or speaks, see `gateway.speech.contract`; `settings` is an instance of `config`."""
        return getattr(self.module, maker)(settings)


def load_speech_kind(packages: Packages, kind: str) -> SpeechKind:
    """Load the module of a kind; a dotted one is a third party's, and says for which version of plugins it was made.

    Raises:
        KindUnusable: says whether the kind is unknown, a library is missing, or the package is broken.
    """
    module = packages.load(kind)
    if "." in kind:
        check_version(kind, module)
    return SpeechKind(kind, module)
