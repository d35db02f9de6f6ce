"""Chat: the operator's own service. Talk with any personality, and go on in what was begun or copied here."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from gateway.web.dashboard.page import Page
from gateway.web.dashboard.page_context import PageContext
from gateway.web.dashboard.pages.chat.conversation import ChatConversation
from gateway.web.dashboard.pages.chat.saying import Saying


def _routes(context: PageContext) -> Sequence[Route]:
    conversation, saying = ChatConversation(context), Saying(context)
    return [
        Route("/chat", conversation.begin),
        Route("/chat/send", context.form_handler(saying.send), methods=["POST"]),
        Route("/chat/stop", context.form_handler(saying.stop), methods=["POST"]),
        Route("/chat/messages", saying.receive, methods=["POST"]),
        Route("/chat/{session}", conversation.show),
        Route("/chat/{session}/events", conversation.events),
    ]


PAGE = Page(name="chat", title="Chat", icon="chat", position=12, routes=_routes)
