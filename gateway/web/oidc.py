"""Signing in by an OpenID provider: the code flow with PKCE, in which the browser carries what it has begun.

What the library does not check is checked here: that the document is the issuer's own (OpenID Connect Discovery 1.0,
section 4.3), that an answer is the issuer's (RFC 9207), and that a token is signed with a public key.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog
from itsdangerous import BadData, URLSafeTimedSerializer

from gateway.config.web import OidcConfig
from gateway.errors import EthosError
from gateway.people.identity.file import clean_label

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import AsyncOAuth2Client  # type: ignore[import-untyped]
    from joserfc.jwk import KeySet

MAX_AGE_S = 600
"""How long a person may take at the provider."""
TIMEOUT_S = 10.0
KEPT_S = 3600.0
"""How long the document and the keys of the provider are used; keys are asked for again when one is not known."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
_LEEWAY_S = 60
_MAX_BYTES = 1 << 20
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")

_log = structlog.get_logger(__name__)


class OidcFailed(EthosError):
    """The provider, or the answer that was brought, cannot be believed; the text is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """Who somebody is, by the provider.

    Attributes:
        account: as the identity map has it, `oidc:<issuer>#<name>`.
        email: that the provider has verified, in small letters; None where it says none, or e-mail is not believed.
    """

    account: str
    label: str
    email: str | None


class Oidc:
    """One provider.

    Args:
        key: a secret of the gateway, which signs what a browser carries.
        redirect_uri: of this gateway; the provider sends browsers nowhere else.
    """

    def __init__(self, config: OidcConfig, key: bytes, redirect_uri: str) -> None:
        self.config = config
        self.redirect_uri = redirect_uri
        self._signer = URLSafeTimedSerializer(key, salt="oidc")
        self._document: Mapping[str, Any] | None = None
        self._keys: KeySet | None = None
        self._asked_at_s = 0.0

    async def begin(self, carried: Mapping[str, str]) -> tuple[str, str, str]:
        """Where the browser goes; its state, and what it carries meanwhile, with `carried` in it.

        Raises:
            OidcFailed: the provider cannot be asked.
        """
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        document = await self._known()
        async with self._client() as client:
            address, _ = client.create_authorization_url(
                document["authorization_endpoint"], state=state, code_verifier=verifier, nonce=nonce
            )
        begun = {**carried, "state": state, "nonce": nonce, "verifier": verifier, "issuer": self.config.issuer}
        return address, state, str(self._signer.dumps(begun))

    async def finish(self, query: Mapping[str, str], carried: str) -> tuple[Proved, Mapping[str, str]]:
        """Who came back; and what the browser has carried.

        Raises:
            OidcFailed: it is not what this browser has begun, or the provider says no, or cannot be believed.
        """
        begun = self._begun(query, carried)
        if "error" in query:
            raise OidcFailed(f"{self.config.name} did not sign you in ({query['error'][:80]}). Try again.")
        token = await self._token(query.get("code", ""), begun["verifier"])
        return self._proved(await self._claims(token, begun["nonce"])), begun

    def _begun(self, query: Mapping[str, str], carried: str) -> Mapping[str, str]:
        try:
            begun: Mapping[str, str] = self._signer.loads(carried, max_age=MAX_AGE_S)
        except BadData:
            begun = {}
        state = query.get("state", "")
        if not state or not secrets.compare_digest(begun.get("state", "").encode(), state.encode("utf-8", "replace")):
            raise OidcFailed("This sign-in was not begun in this browser, or took too long. Begin again.")
        if begun["issuer"] != self.config.issuer or query.get("iss", self.config.issuer) != self.config.issuer:
            raise OidcFailed("The answer came from another provider. Begin again.")
        return begun

    # ---- the provider -----------------------------------------------------------------------------------------------

    def _client(self) -> AsyncOAuth2Client:
        from authlib.integrations.httpx_client import AsyncOAuth2Client  # noqa: PLC0415 (with the first sign-in)

        secret = self.config.client_secret
        return AsyncOAuth2Client(
            client_id=self.config.client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            scope=self.config.scope,
            redirect_uri=self.redirect_uri,
            code_challenge_method="S256",
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            timeout=TIMEOUT_S,
            follow_redirects=False,
            trust_env=False,
        )

    async def _known(self) -> Mapping[str, Any]:
        """The document of the provider, which must be its own."""
        if self._document is not None and time.monotonic() - self._asked_at_s < KEPT_S:
            return self._document
        found = await self._json(f"{self.config.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self.config.issuer:
            raise self._failed("the document at the issuer's address is another issuer's")
        schemes = {"https", urlsplit(self.config.issuer).scheme}  # `http` on this machine only
        for name in _ENDPOINTS:
            address = found.get(name)
            if not isinstance(address, str) or urlsplit(address).scheme not in schemes:
                raise self._failed(f"the document has no good {name}")
        self._document, self._keys, self._asked_at_s = found, None, time.monotonic()
        return found

    async def _json(self, address: str) -> Mapping[str, Any]:
        import httpx  # noqa: PLC0415 (as above)

        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client:
                async with client.stream("GET", address) as response:
                    body = bytearray()
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        if len(body) > _MAX_BYTES:
                            raise self._failed("an answer is too large")
                    response.raise_for_status()
                found = httpx.Response(200, content=bytes(body)).json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._failed(f"{urlsplit(address).netloc} cannot be asked: {error}") from error
        if not isinstance(found, dict):
            raise self._failed("an answer is no object")
        return found

    async def _token(self, code: str, verifier: str) -> Mapping[str, Any]:
        import httpx  # noqa: PLC0415 (as above)
        from authlib.common.errors import AuthlibBaseError  # type: ignore[import-untyped]  # noqa: PLC0415 (as above)

        document = await self._known()
        try:
            async with self._client() as client:
                found = await client.fetch_token(
                    document["token_endpoint"], grant_type="authorization_code", code=code, code_verifier=verifier
                )
        except (httpx.HTTPError, AuthlibBaseError, ValueError) as error:
            raise self._failed(f"the code was not taken: {error}") from error
        return dict(found)

    async def _claims(self, token: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        """What the ID token says, once it is known to be good (OpenID Connect Core 1.0, section 3.1.3.7)."""
        from authlib.oidc.core import CodeIDToken  # type: ignore[import-untyped]  # noqa: PLC0415 (as above)
        from joserfc import jwt  # noqa: PLC0415 (as above)
        from joserfc.errors import JoseError  # noqa: PLC0415 (as above)

        id_token = token.get("id_token")
        if not isinstance(id_token, str):
            raise self._failed("there is no ID token")
        try:
            try:
                decoded = jwt.decode(id_token, await self._key_set(), algorithms=list(ALGORITHMS))
            except (JoseError, ValueError):
                self._keys = None  # it may be signed with a new key
                decoded = jwt.decode(id_token, await self._key_set(), algorithms=list(ALGORITHMS))
            issuer, client_id = self.config.issuer, self.config.client_id
            wanted = {"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": client_id}}
            given = {"nonce": nonce, "client_id": client_id, "access_token": token.get("access_token")}
            claims = CodeIDToken(decoded.claims, decoded.header, wanted, given)
            claims.validate(leeway=_LEEWAY_S)
        except (JoseError, ValueError, TypeError) as error:
            raise self._failed(f"the ID token is not good: {type(error).__name__}: {error}") from error
        return dict(claims)

    async def _key_set(self) -> KeySet:
        from joserfc.jwk import KeySet  # noqa: PLC0415 (as above)

        if self._keys is None:
            found = await self._json((await self._known())["jwks_uri"])
            self._keys = KeySet.import_key_set(found)  # type: ignore[arg-type]
        return self._keys

    def _proved(self, claims: Mapping[str, Any]) -> Proved:
        name = claims.get(self.config.claim)
        if not isinstance(name, str) or not name.strip():
            raise self._failed(f"the ID token has no claim {self.config.claim}")
        email = claims.get("email")
        is_believed = self.config.email_kind is not None and claims.get("email_verified") is True
        label = next((claims[one] for one in ("name", "preferred_username", "email") if claims.get(one)), name)
        return Proved(
            account=f"oidc:{self.config.issuer}#{name}",
            label=clean_label(str(label)),
            email=email.lower() if is_believed and isinstance(email, str) and email else None,
        )

    def _failed(self, why: str) -> OidcFailed:
        _log.warning("oidc_failed", issuer=self.config.issuer, error=why)
        return OidcFailed(f"{self.config.name} did not sign you in. The gateway's log says why; try again later.")
