"""An OpenID provider that says whatever a test wants: hostile, careless, or with new keys."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey

CLIENT, SECRET = "ethos", "a-secret-of-the-client"
Claims = dict[str, Any]


@dataclass
class Behaviour:
    """What it does wrong.

    Attributes:
        claims: changes what the ID token says.
        document: in place of parts of its own.
        answer: with what a browser is sent back, in place of parts of its own.
        sign: makes the ID token; None: with its key.
        token: changes the answer with the tokens.
        status: of that answer.
    """

    claims: Callable[[Claims], object] = lambda _claims: None
    document: Mapping[str, object] = field(default_factory=dict)
    answer: Mapping[str, str] = field(default_factory=dict)
    sign: Callable[[Claims], str] | None = None
    token: Callable[[Claims], object] = lambda _token: None
    status: int = 200


class Provider:
    """Serves from `with` on. A browser that comes is signed in at once, as `claims`."""

    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.claims: Claims = {"sub": "ada-17", "name": "Ada"}
        self.key = RSAKey.generate_key(2048, {"kid": "first"}, private=True)
        self.asked: list[Mapping[str, str]] = []
        self._codes: dict[str, Mapping[str, str]] = {}

    def rotate(self) -> None:
        """Sign with a new key from now on, and forget the old one."""
        self.key = RSAKey.generate_key(2048, {"kid": f"at {time.monotonic()}"}, private=True)

    def __enter__(self) -> Self:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
                match parts.path:
                    case "/.well-known/openid-configuration":
                        self.answer(200, provider.document())
                    case "/keys":
                        self.answer(200, KeySet([provider.key]).as_dict(private=False))
                    case "/authorize":
                        self.send_response(302)
                        self.send_header("location", provider.authorized(query))
                        self.end_headers()
                    case _:
                        self.answer(404, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                form = {name: values[-1] for name, values in parse_qs(body).items()}
                self.answer(*provider.issued(form, self.headers.get("authorization", "")))

            def answer(self, status: int, content: Any) -> None:
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def document(self) -> Claims:
        own = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }
        return {**own, **self.behaviour.document}

    def authorized(self, query: Mapping[str, str]) -> str:
        self.asked.append(query)
        code = f"code-{len(self.asked)}"
        self._codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.issuer, **self.behaviour.answer}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def issued(self, form: Mapping[str, str], authorization: str) -> tuple[int, Claims]:
        """The tokens, to the client that shows its secret and the verifier of what it has begun."""
        asked = self._codes.pop(form.get("code", ""), None)
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).rstrip(b"=").decode()
        if asked is None or authorization != f"Basic {basic}" or challenge != asked["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "exp": now + 300,
            "iat": now,
            "nonce": asked["nonce"],
            **self.claims,
        }
        self.behaviour.claims(claims)
        sign = self.behaviour.sign or self.signed
        token: Claims = {"access_token": "opaque", "token_type": "Bearer", "id_token": sign(claims)}
        self.behaviour.token(token)
        return self.behaviour.status, token

    def signed(self, claims: Claims) -> str:
        """With its own key."""
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)


def by_another_key(claims: Claims) -> str:
    """Signed by somebody else, under the name of the provider's key."""
    return jwt.encode({"alg": "RS256", "kid": "first"}, claims, RSAKey.generate_key(2048, private=True))


def by_the_secret(claims: Claims) -> str:
    """Signed with what every client of that name knows."""
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET * 2), algorithms=["HS256"])


def unsigned(claims: Claims) -> str:
    """With the algorithm `none` (RFC 7519, section 6)."""
    parts = [json.dumps(one).encode() for one in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(one).rstrip(b"=").decode() for one in parts) + "."
