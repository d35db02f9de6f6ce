"""What may go wrong with a server, besides what a tool may raise."""

from __future__ import annotations

from gateway.tools.contract import ToolUnavailable

WANTS_MORE = "wants more to be allowed; sign in again"


class ConnectionEnded(Exception):
    """The connection ended before there was an answer."""


class SessionGone(Exception):
    """The server was restarted and knows the session no more; the call has not run."""


class SignInFailed(Exception):
    """The server wants a token, and there is none that it takes: nothing was done; the text says why."""


class MoreWanted(SignInFailed):
    """The server wants more to be allowed than the account has allowed."""


class LacksPermission(ToolUnavailable):
    """It was not done, for that reason."""


class CannotStart(Exception):
    """The program of a server cannot be run; the text says why, and what to do."""
