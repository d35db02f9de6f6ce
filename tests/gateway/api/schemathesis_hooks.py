"""What no schema can say: that an Idempotency-Key is another one for another request."""

from __future__ import annotations

import uuid
from typing import Any

import schemathesis


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    if case.headers and "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = uuid.uuid4().hex
