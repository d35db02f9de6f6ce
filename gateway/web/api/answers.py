"""Answers besides the good one, as a route declares them for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from gateway.sdk.models.schema import ConflictProblem, Problem
from gateway.web.pages import PROBLEM_MEDIA_TYPE

Answers = dict[int | str, dict[str, Any]]


def problems(**texts: str) -> Answers:
    """`not_found`, `not_possible`, … each with when it happens."""
    return {_STATUS[name]: described(text) for name, text in texts.items()}


def described(text: str, *, model: type[Problem] = Problem) -> dict[str, Any]:
    """An answer that is a problem document."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"description": text, "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}}}


CONFLICT: Answers = {
    409: described("The document changed since it was read; both texts are there.", model=ConflictProblem)
}
PRECONDITION_FAILED: Answers = {
    412: described("It is not the version of `If-Match` any more; both texts are there.", model=ConflictProblem)
}
NOT_KEPT = {"cache-control": "no-store"}
"""Headers of an answer that must not be kept for a repeated request: it holds a secret, or names an erased person."""
NOT_MODIFIED: Answers = {304: {"description": "It is still the version of `If-None-Match`."}}

_STATUS = {"not_found": 404, "not_possible": 409, "too_large": 413, "version_required": 428, "not_offered": 501}
