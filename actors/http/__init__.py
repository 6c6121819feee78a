"""The HTTP face: Starlette routes over the port that the handles of Python users stand on."""

from tocsin.actors.http.access import Authorize, Caller
from tocsin.actors.http.app import App, build_app
from tocsin.actors.http.tokens import Token, Tokens, parse_token, parse_tokens

__all__ = ["App", "Authorize", "Caller", "Token", "Tokens", "build_app", "parse_token", "parse_tokens"]
