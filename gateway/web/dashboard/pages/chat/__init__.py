"""Chat: the operator's own desk. Talk with any personality, and go on in what was begun or copied here."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import Frame
from gateway.web.dashboard.pages.chat.conversation import ChatConversation
from gateway.web.dashboard.pages.chat.saying import Saying


def _routes(frame: Frame) -> Sequence[Route]:
    conversation, saying = ChatConversation(frame), Saying(frame)
    return [
        Route("/chat", conversation.begin),
        Route("/chat/send", frame.taking(saying.send), methods=["POST"]),
        Route("/chat/stop", frame.taking(saying.stop), methods=["POST"]),
        Route("/chat/messages", saying.receive, methods=["POST"]),
        Route("/chat/{session}", conversation.show),
        Route("/chat/{session}/events", conversation.events),
    ]


PAGE = Page(name="chat", title="Chat", icon="chat", position=12, routes=_routes)
