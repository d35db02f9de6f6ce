"""What the loop asks of a model, in words of our own; nothing of a provider is loaded here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gateway.domain.images import ModelImage
from gateway.domain.personalities.files import Thinking
from gateway.errors import ModelRefused
from gateway.runtime.observe import note, span
from gateway.tools.spec import ToolCall, ToolSpec, size_bytes

Purpose = Literal[
    "answer", "delegate", "summary", "facts", "insight", "gist", "embedding", "values", "aside", "listen", "speak"
]
THOUGHT_ABOUT: tuple[Purpose, ...] = ("answer", "delegate")
"""Work for a person, which alone is worth the time; all else is thought about as little as possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsSent:
    """A message of the assistant as its provider sent it, with hidden reasoning and its signatures.

    Attributes:
        by: the model that wrote it, and where; nobody else can read it.
        body: in JSON.
    """

    by: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message in front of the model. Those of a session's window are the same objects in turn after turn.

    Attributes:
        images: of a person's message, or of what a tool returned; a model that cannot see passes over them, and knows
            their names from the text.
        as_sent: of one that calls tools; some providers demand it back with the results.
        role: `assistant` may carry tool calls; `tool` answers one, named by `tool_call_id`.
    """

    role: Literal["user", "assistant", "tool"]
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    images: tuple[ModelImage, ...] = ()
    as_sent: AsSent | None = field(default=None, repr=False, compare=False)
    _rendered: bytes = field(default=b"", init=False, repr=False, compare=False)
    _rendered_by: Render | None = field(default=None, init=False, repr=False, compare=False)
    _size_bytes: int = field(default=-1, init=False, repr=False, compare=False)

    @property
    def size_bytes(self) -> int:
        """Of its text and its calls, in UTF-8; counted once."""
        if self._size_bytes < 0:
            calls = (call.name + call.arguments for call in self.tool_calls)
            object.__setattr__(self, "_size_bytes", sum(map(size_bytes, (self.text, *calls))))
        return self._size_bytes

    @property
    def is_rendered(self) -> bool:
        """It was rendered before, so that to do it again most likely costs nothing."""
        return self._rendered_by is not None

    def rendered(self, render: Render) -> bytes:
        """What `render` makes of it. It is made once and kept with the message: a turn renders only what is new."""
        if self._rendered_by is not render:
            object.__setattr__(self, "_rendered", render(self))
            object.__setattr__(self, "_rendered_by", render)
        return self._rendered


Render = Callable[[ChatMessage], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """On whose account a model is called; empty where no one person is meant.

    Attributes:
        turn_id: empty for work between the turns, such as a summary, which is paid for and is no turn.
    """

    user_id: str = ""
    personality_id: str = ""
    turn_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call of a model.

    Attributes:
        spender: whose budget it is counted on.
        late_chars: of the system prompt, at its end: what holds for the newest message alone. A provider is shown it
            behind that message, so that all before stays the same from turn to turn, as its cache needs it.
        may_call_tools: False: the tools are named because earlier messages call them, and none may be called now.
        purpose: why it is made; a model of the network need not care, the offline model has no other way to know.
        thinking: None leaves it to the model's own configuration.
        speech_s: seconds of speech that are heard or said, besides the messages.
    """

    system: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    late_chars: int = 0
    may_call_tools: bool = True
    max_output_tokens: int | None = None
    purpose: Purpose = "answer"
    thinking: Thinking | None = None
    spender: Spender = field(default_factory=Spender)
    speech_s: float = 0.0

    @property
    def settled(self) -> str:
        """The system prompt without what is late."""
        return self.system[: len(self.system) - self.late_chars].rstrip()

    @property
    def late(self) -> str:
        """What is late; empty where nothing is."""
        return self.system[len(self.system) - self.late_chars :]

    @property
    def newest(self) -> int:
        """Where the newest message of the person stands; -1: nowhere."""
        return next((at for at in reversed(range(len(self.messages))) if self.messages[at].role == "user"), -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """What one call cost; `cost_usd` is None where no price is known.

    Attributes:
        cached_tokens: of the input, what the provider read from its cache.
        written_tokens: of the input, what it wrote to its cache.
        is_cut: the answer ended where it was as long as it may be.
    """

    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None
    cached_tokens: int = 0
    written_tokens: int = 0
    is_cut: bool = False

    @property
    def facts(self) -> dict[str, int]:
        """For the span of the call."""
        names = ("input_tokens", "output_tokens", "cached_tokens", "written_tokens")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer, to be appended."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRestarted:
    """The text so far is void: the call failed midway and is being made again, perhaps by another model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The whole answer; the last event of every stream that did not raise.

    Attributes:
        unthought: why the model did not think as it was to; empty where it could, None where nothing was said of that.
    """

    message: ChatMessage
    usage: ModelUsage
    unthought: str | None = None


ModelEvent = TextDelta | StreamRestarted | ModelReply


class Model(Protocol):
    """Something that answers."""

    @property
    def name(self) -> str:
        """As in the configuration."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer, piece by piece. Cancelling the consumer cancels the call, and so does closing the stream.

        Raises:
            ModelUnavailable: no answer now.
            ModelRefused: never an answer to this request.
        """
        ...


async def reply_of(model: Model, request: ModelRequest) -> ModelReply:
    """The whole answer at once, where no one watches it grow; a span of its own.

    Raises:
        ModelUnavailable: no answer now.
        ModelRefused: never an answer to this request.
    """
    reply: ModelReply | None = None
    with span("model.call", model=model.name, purpose=request.purpose):
        async for event in model.stream(request):
            if isinstance(event, ModelReply):
                reply = event
                note(**event.usage.facts)
    if reply is None:
        raise ModelRefused(f"the model {model.name} gave no answer")
    return reply
