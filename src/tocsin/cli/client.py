"""Send a command's request to a server, and return its JSON answer or fail clearly.
What the server says in its error envelope is what the user reads."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Concatenate, Final, ParamSpec
from urllib.parse import urlsplit

import click

from tocsin.cli.failure import Failure, NotNow, Refused, Unreachable, WrongSettings, settings_checked
from tocsin.cli.flags import as_typed
from tocsin.cli.names import NOT_TEXT, instance_in_path
from tocsin.cli.output import emit
from tocsin.cli.words import printable, say

if TYPE_CHECKING:
    import ssl

    import httpx

P = ParamSpec("P")
DEFAULT_PORT: Final = 8321
DEFAULT_URL: Final = f"http://127.0.0.1:{DEFAULT_PORT}"
TIMEOUT_S: Final = 30.0
NOT_NOW: Final = 503
ACCEPTED: Final = 202
NO_TOKEN: Final = "give a token with --token or TOCSIN_TOKEN"
WRONG_TOKEN: Final = "check --token (TOCSIN_TOKEN): the server does not know the one that was given"
MOUNTED: Final = "check --url (TOCSIN_URL): of an app mounted in another it needs the path, like http://host/tocsin"
OTHERWISE: Final = "the port of the local server is looked for there; or give --url (TOCSIN_URL)"
HINTS: Final = {
    "ORIGIN_NOT_CONFIGURED": "start the server with --origin-url or TOCSIN_ORIGIN_URL",
    "DUPLICATE_SCHEDULE_ID": "--on-conflict (error, keep, replace) says what to do about that job",
    "OVERLOADED": "try again in a moment",
}


class Accepted(Failure):
    """Ends the command: what it asked for is kept in a store that several hosts share, and will be done once."""

    exit_code = 0

    def __init__(self, answer: dict[str, Any], *, as_json: bool) -> None:
        self.answer, self._as_json = answer, as_json
        self.ids = [str(each) for each in answer.get("ids") or [answer.get("id", "")]]
        """Of the jobs it will make; else the one of the call."""
        super().__init__(
            "accepted: it is kept in the store, and done as soon as the scheduler has an owner "
            f"(id {', '.join(map(printable, self.ids))}); do not send it again"
        )

    def show(self, file: IO[Any] | None = None) -> None:
        if self._as_json:
            emit(self.answer)
        else:
            say(self.format_message())


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A server, an instance, and how answers are printed."""

    url: str = DEFAULT_URL
    source: str = ""
    """The setting that the URL was derived from, if none was given."""
    token: str | None = field(default=None, repr=False)
    instance: str = "default"
    as_json: bool = False
    timeout_s: float = TIMEOUT_S
    ca_file: str | None = None
    """PEM file of additional trusted authorities."""

    def __post_init__(self) -> None:
        if self.instance != "default":
            instance_in_path(self.instance)  # refused before anybody is asked anything

    def get(self, route: str, **query: Any) -> Any:
        """Return the JSON answer; parameters that are None are left out."""
        return self._ask("GET", route, params={k: v for k, v in query.items() if v is not None})

    def post(self, route: str, body: Any) -> Any:
        """Return the JSON answer to a JSON body (anything msgspec can encode). Accepted: it has none yet."""
        return self._send("POST", route, body)

    def count(self, route: str, body: dict[str, Any]) -> Any:
        """Return what a change would do, and do nothing. NotNow where that is not known before the owner is back."""
        try:
            return self.post(route, {**body, "dryRun": True})
        except Accepted:
            raise NotNow(f"{self.instance} has no owner at present, so nothing was counted, nor changed") from None

    def put(self, route: str, body: Any) -> Any:
        return self._send("PUT", route, body)

    def delete(self, route: str, **query: Any) -> Any:
        return self._ask("DELETE", route, params=query)

    def remove_instance(self) -> Any:
        """Remove this connection's instance; the server requires its name twice."""
        prefix = f"/i/{instance_in_path(self.instance)}"
        return self.of("default")._ask("DELETE", prefix, params={"confirm": self.instance})

    def show(self, answer: Any, printed: Callable[[Any], None]) -> None:
        """Print an answer: as JSON if that is wanted, else as `printed` does for people."""
        if self.as_json:
            emit(answer)
        else:
            printed(answer)

    def show_all(self, found: Sequence[Any], printed: Callable[[Any], None], none: str) -> None:
        """Print a list: one JSON value a line if that is wanted, else as `printed` does; `none` if it is empty."""
        if self.as_json:
            for one in found:
                emit(one)
        elif found:
            printed(found)
        else:
            say(none)

    def tell(self, answer: Any, done: object, refusal: str, words: str) -> None:
        """Print what was done: the answer as JSON if that is wanted, else `words`. Refused if it was not done."""
        if self.as_json:
            emit(answer)
        if not done:
            raise Refused(refusal)
        if not self.as_json:
            say(words)

    def of(self, instance: str) -> Connection:
        """Return the same connection, to another instance."""
        return dataclasses.replace(self, instance=instance)

    def patient(self, timeout_s: float) -> Connection:
        """Return the same connection, for a request that is answered late."""
        return dataclasses.replace(self, timeout_s=timeout_s)

    def _send(self, method: str, route: str, body: Any) -> Any:
        import msgspec

        try:
            content = msgspec.json.encode(body)
        except UnicodeEncodeError:
            raise WrongSettings(NOT_TEXT) from None
        return self._ask(method, route, content=content, headers={"content-type": "application/json"})

    def _verified(self) -> ssl.SSLContext | bool:
        """Return how to check the server's certificate."""
        if not self.ca_file:
            return True
        from tocsin.dispatch.certificates import trusting

        with settings_checked():
            return trusting(self.ca_file, "--ca-file (TOCSIN_CA_FILE)")

    def _ask(self, method: str, route: str, **request: Any) -> Any:
        import httpx

        base = _checked(self.url)
        headers = {"accept": "application/json", **request.pop("headers", {})}
        if self.token:
            headers["authorization"] = f"Bearer {_sendable(self.token)}"
        try:
            prefix = "" if self.instance == "default" else f"/i/{instance_in_path(self.instance)}"
            # Certificates are read only for a URL that has any: that takes longer than all else. Redirects are not
            # followed, so plain HTTP stays what it is.
            secure = base.startswith("https:") and self._verified()
            with httpx.Client(timeout=self.timeout_s, trust_env=not _local(base), verify=secure) as client:
                response = client.request(method, base + prefix + route, headers=headers, **request)
        except httpx.TimeoutException:
            raise Unreachable(
                f"{base} did not answer within {self.timeout_s:.0f} s"
                + ("; it may have done what was asked" if method != "GET" else "")
            ) from None
        except UnicodeEncodeError:
            raise WrongSettings(NOT_TEXT) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(_unreachable(base, self.source, error)) from None
        answer = _answer(base, response, with_token=bool(self.token))
        if response.status_code == ACCEPTED:
            raise Accepted(answer, as_json=self.as_json)
        return answer


def _checked(url: str) -> str:
    from tocsin.dispatch.target import check_url

    with settings_checked():
        return check_url(url.strip(), "--url (TOCSIN_URL)", example=DEFAULT_URL).rstrip("/")


def _sendable(token: str) -> str:
    """Refuse a token that no header can hold, without printing it."""
    from tocsin.dispatch.server_client import sendable_token

    with settings_checked("--token (TOCSIN_TOKEN): "):
        return sendable_token(token.strip())


def _local(base: str) -> bool:
    """Return whether a URL is on loopback, which is never reached through a proxy of the environment."""
    return urlsplit(base).hostname in ("localhost", "127.0.0.1", "::1")


def _unreachable(base: str, source: str, error: Exception) -> str:
    from tocsin.dispatch.connection_faults import in_words

    reason = in_words(error, base)
    made_of = f" ({source})" if source else ""
    return f"no server at {base}{made_of}: {reason}. Start one with `tocsin serve`, or give --url (TOCSIN_URL)."


def _answer(base: str, response: httpx.Response, *, with_token: bool) -> Any:
    try:
        value = response.json()
    except ValueError:
        value = None
    if response.is_success and isinstance(value, dict):
        return value
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict) or "code" not in error:
        kind = response.headers.get("content-type", "no content type")
        words = f"what answers at {base} is not a tocsin server (status {response.status_code}, {kind})"
        raise Unreachable(f"{words}\n{MOUNTED}" if response.status_code == 404 else words)
    code = str(error["code"])
    words = f"{as_typed(str(error.get('message') or 'refused'))} [{code}]"
    hint = (WRONG_TOKEN if with_token else NO_TOKEN) if code == "UNAUTHENTICATED" else HINTS.get(code)
    if hint:
        words += f"\n{hint}"
    raise (NotNow if response.status_code == NOT_NOW else Refused)(words)


def local_url(config: str | None = None) -> tuple[str, str]:
    """Return where `tocsin serve` would listen if started here, and the setting that says so ("" for none).

    The port counts wherever it is said. Of the host only loopback does: a file that happens to lie here must not send
    a token to another machine.
    """
    from tocsin.settings import load

    with settings_checked(behind=f"\n{OTHERWISE}"):
        settings = load({"config": config}, os.environ, needed=("host", "port"))
    host = settings.host if settings.bound_to_loopback else "::1" if settings.host == "::" else "127.0.0.1"
    source = settings.sources["port"]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{settings.port or DEFAULT_PORT}", "" if source == "default" else source


def client_command(function: Callable[Concatenate[Connection, P], None]) -> Callable[..., None]:
    """Give a command the options of a connection, and the connection as its first argument."""

    @click.option("--url", envvar="TOCSIN_URL", help="The server (default: the one that serve starts here).")
    @click.option("--token", envvar="TOCSIN_TOKEN", help="Bearer token; better given as TOCSIN_TOKEN.")
    @click.option("--instance", envvar="TOCSIN_INSTANCE", default="default", show_default=True, help="The scheduler.")
    @click.option("--ca-file", envvar="TOCSIN_CA_FILE", metavar="FILE", help="PEM of authorities to trust as well.")
    @click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout, one value a line.")
    @functools.wraps(function)
    def run(
        *args: Any,
        url: str | None,
        token: str | None,
        instance: str,
        ca_file: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        given, source = (url, "") if url else local_url()
        connection = Connection(
            url=given, source=source, token=token or None, instance=instance, as_json=as_json, ca_file=ca_file
        )
        function(connection, *args, **options)

    return run
