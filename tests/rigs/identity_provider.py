"""An identity provider in this process: discovery and keys by http or https, and access tokens it signed."""

import json
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import flask
import oidc_provider_mock
import urllib3
import werkzeug.serving
from authlib import jose
from joserfc import jwt
from joserfc.jwk import RSAKey

AUDIENCE = "siltlog"


class IdentityProvider:
    """Its port stays while it is away."""

    def __init__(self, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        self._host, self._port, self._context = host, 0, context
        self._app = oidc_provider_mock.app()
        self._app.before_request(self._count)
        self.asked: list[str] = []
        """Paths of the requests, in order."""
        self.forms: list[dict[str, str]] = []
        """What forms were posted to it, in order."""
        with self._app.test_request_context("/"):
            self._app.preprocess_request()
            self._storage = flask.g.oidc_provider_mock_storage
        self.asked.clear()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def issuer(self) -> str:
        return f"{'https' if self._context else 'http'}://{self._host}:{self._port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def resume(self) -> None:
        self._start()

    def rotate(self) -> None:
        """Signs with another key from now on, and publishes that alone."""
        self._storage.jwk = jose.RSAKey.generate_key(is_private=True)

    def token(self, subject: str = "ada", seconds: float = 300, **claims: Any) -> str:
        """Signs an access token (RFC 9068) that ends in `seconds`; a claim that is None is left out."""
        now = int(time.time())
        whole: Mapping[str, Any] = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": subject,
            "iat": now,
            "exp": time.time() + seconds,
            **claims,
        }
        key = RSAKey.import_key(self._storage.jwk.as_dict(is_private=True))
        kid = json.loads(self._app.test_client().get("/jwks").data)["keys"][0]["kid"]
        header = {"alg": "RS256", "typ": "at+jwt", "kid": kid}
        return jwt.encode(header, {name: value for name, value in whole.items() if value is not None}, key)

    def id_token(self, client_id: str, subject: str = "ada") -> str:
        """Logs in as a page does, and gives what tells the page who did."""
        back = "https://page.example/callback"
        asked = {"client_id": client_id, "response_type": "code", "scope": "openid", "redirect_uri": back, "nonce": "n"}
        http = urllib3.PoolManager()
        sent = http.request(
            "POST",
            f"{self.issuer}/oauth2/authorize?{urlencode(asked)}",
            body=urlencode({"sub": subject}),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            redirect=False,
        )
        code = parse_qs(urlsplit(sent.headers["location"]).query)["code"][0]
        wanted = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "client_id": client_id}
        answer = http.request(
            "POST",
            f"{self.issuer}/oauth2/token",
            body=urlencode({**wanted, "client_secret": "s"}),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        return str(answer.json()["id_token"])

    def _start(self) -> None:
        self._server = werkzeug.serving.make_server(
            self._host, self._port, self._app, threaded=True, ssl_context=self._context
        )
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def _count(self) -> None:
        self.asked.append(flask.request.path)
        if flask.request.method == "POST":
            self.forms.append(flask.request.form.to_dict())
