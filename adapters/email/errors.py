"""What an error of an encrypted line means for whoever configured it. Pure functions."""

from __future__ import annotations

import ssl

_NOT_TLS = {"WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE"}
"""What OpenSSL says when the first bytes of the other side are no TLS; which of them depends on its version."""


def explanation(error: BaseException, port_keys: str) -> str | None:
    """In words that lead to a key of the configuration; None where TLS is not what failed.

    Args:
        error: as it was caught; what it came of is looked at too.
        port_keys: the keys that say where and how the server is spoken to.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({seen.verify_message}); see `ca_file`"
        if isinstance(seen, ssl.SSLError) and getattr(seen, "reason", None) in _NOT_TLS:
            return f"it does not begin with TLS; see {port_keys}"
        seen = seen.__cause__ or seen.__context__
    return None
