"""An endpoint that speaks OpenAI's wire format for audio: what its two calls have in common.

https://platform.openai.com/docs/api-reference/audio (read 2026-11). What a busy server did not do is asked for again,
once. A call that broke off, or took too long, is not: it may be paid for.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import SecretStr, field_validator
from pydantic import ValidationInfo as Info

from gateway.agent.providers.models import HTTP_LIBRARY, CallFailed, Endpoint
from gateway.config.values import Section, Text, WebAddress
from gateway.errors import ModelUnavailable
from gateway.runtime.extras import how_to_install

if TYPE_CHECKING:
    from gateway.agent.providers.http import ProviderHttp

AGAIN_S = 1.0
_NOT_DONE = frozenset([429, 503])
_LONGEST_WAIT_S = 5.0
_READ_TIMEOUT_S = 600.0  # a second net: who calls has a time of their own


class EndpointConfig(Section):
    """Where it is.

    Attributes:
        base_url: None for OpenAI itself.
        api_key: needed there; a server of one's own may want none.
    """

    model: Text
    base_url: WebAddress | None = None
    api_key: SecretStr | None = None

    @field_validator("api_key")
    @classmethod
    def _has_key(cls, value: SecretStr | None, info: Info) -> SecretStr | None:
        is_vendor = info.data.get("base_url", "") is None
        if is_vendor and not (value and value.get_secret_value().strip()):
            raise ValueError("missing; expected `${ENV_VAR}`, `{file: path}` or `{keyring: name}`")
        return value


@dataclass(frozen=True, slots=True)
class _Refused:
    status: int
    failure: CallFailed

    @property
    def wait_s(self) -> float:
        """Before it is asked again."""
        error = self.failure.error
        asked_s = error.retry_after_s if isinstance(error, ModelUnavailable) else None
        return AGAIN_S if asked_s is None else asked_s


class SpeechEndpoint:
    """Makes the calls. Nothing is loaded before the first of them."""

    def __init__(self, name: str, config: EndpointConfig) -> None:
        """`name` is that of the section in the configuration."""
        key = config.api_key.get_secret_value().strip() if config.api_key else ""
        self._endpoint = Endpoint(
            name=name,
            provider="openai",
            model=config.model,
            api_key=key or None,
            base_url=config.base_url,
            read_timeout_s=_READ_TIMEOUT_S,
        )

    async def post(self, path: str, body: bytes, *, content_type: str, most_bytes: int) -> bytes:
        """What it answers.

        Raises:
            CallFailed: whatever went wrong; `error` is what to tell.
        """
        answer = await self._post(path, body, content_type, most_bytes)
        if isinstance(answer, _Refused) and answer.status in _NOT_DONE and answer.wait_s <= _LONGEST_WAIT_S:
            await asyncio.sleep(answer.wait_s)
            answer = await self._post(path, body, content_type, most_bytes)
        if isinstance(answer, _Refused):
            raise answer.failure
        return answer

    async def _post(self, path: str, body: bytes, content_type: str, most_bytes: int) -> bytes | _Refused:
        if find_spec(HTTP_LIBRARY) is None:
            missing = f"the library for it is not installed; run {how_to_install('models')}"
            raise CallFailed(ModelUnavailable(f"{self._endpoint.name}: {missing}"), retry="never")
        http = await asyncio.to_thread(_load, self._endpoint)  # the import takes a while
        from gateway.agent.providers.errors import why_failed, why_refused  # noqa: PLC0415 (loads the HTTP client)
        from gateway.agent.providers.http import read_body, read_error  # noqa: PLC0415 (as above)

        try:
            async with http.post(path, body, content_type=content_type) as response:
                if response.status < 300:
                    return await read_body(response, most_bytes=most_bytes)
                said = await read_error(response)
                return _Refused(response.status, why_refused(response.status, response.headers, said, self._endpoint))
        except Exception as error:
            # Broad on purpose, as for models: whatever a server's answer breaks is a failed call.
            raise why_failed(error, self._endpoint) from error
        finally:
            await http.close()  # a call takes seconds, and a new connection milliseconds


def _load(endpoint: Endpoint) -> ProviderHttp:
    from gateway.agent.providers.http import ProviderHttp  # noqa: PLC0415 (loads the HTTP client)

    return ProviderHttp(endpoint, {})
