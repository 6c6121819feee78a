"""One request for a page: who asks, about which instance, and what that caller may see and do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlencode

from tocsin.actors.http.access import Gate, Visit
from tocsin.actors.http.asked_by import DASHBOARD, asked_by
from tocsin.actors.http.crowd import Crowd
from tocsin.actors.http.endpoint import DEFAULT_INSTANCE
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.operations import OPERATIONS
from tocsin.actors.http.query import Query
from tocsin.actors.http.served import ServedHost
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.model.records import Status
from tocsin.errors import ForbiddenError, InvalidInputError

SCOPES: Final = {one.action: one.scopes for one in OPERATIONS}
"""Which scopes let a token do what: as over HTTP."""


@dataclass(slots=True)
class Asked:
    """A request for a page or an act, whose caller is known. Reads and acts go through `port`, as those of HTTP do."""

    request: Incoming
    host: ServedHost
    gate: Gate
    visit: Visit
    crowd: Crowd
    names: Mapping[str, str] = field(default_factory=dict)
    """The named parts of its path."""
    form: Mapping[str, str] = field(default_factory=dict)
    """The members of the form, where one was sent."""
    once: str = ""
    """The mark of that form alone, if it has one."""
    _status: Status | None = None

    @property
    def instance(self) -> str:
        name: str = self.request.path_params.get("instance", DEFAULT_INSTANCE)
        return name

    @property
    def port(self) -> SchedulerPort:
        """The scheduler that the page is about. What is changed through it is noted as done by this caller here."""
        port = self.host.ports(self.instance)
        # Only an act asks an app's user for its text: that may be slow, or fail.
        return port.asked_by(asked_by(self.visit, DASHBOARD)) if self.request.method == "POST" else port

    @property
    def now_ms(self) -> int:
        """The time of the instance, which may have a test clock."""
        return self.port.checks.now_ms()

    async def status(self) -> Status | None:
        """Return the counts and the health of the instance, read once; None to whom HTTP would not tell them."""
        if self._status is None and await self.may("status"):
            self._status = self.crowd.seen(await self.port.reads.status())
        return self._status

    # ---- Leave -----------------------------------------------------------------------------------

    async def admit(self, action: str, resource: str | None = None, *, instance: str | None = None) -> None:
        """Raise the error that HTTP answers, if this caller may not do that there."""
        name = self.instance if instance is None else instance
        if self.visit.refusal is not None:
            raise self.visit.refusal
        self.gate.check_token(self.visit.token, SCOPES[action], action, name)
        await self.gate.ask(self.visit.caller, action, name, resource)

    async def may(self, action: str, resource: str | None = None, *, instance: str | None = None) -> bool:
        """Return whether this caller may do that there."""
        try:
            await self.admit(action, resource, instance=instance)
        except ForbiddenError:
            return False
        return True

    # ---- Addresses -------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        """The path that the app is mounted at."""
        root: str = self.request.scope.get("root_path", "")
        return root.rstrip("/")

    @property
    def at_root(self) -> str:
        """The same path as links have it."""
        return quote(self.root, safe="/:")

    @property
    def feed(self) -> str:
        """The address of what changes in this instance, as events."""
        place = f"/i/{self.instance}" if "instance" in self.request.path_params else ""
        return f"{self.at_root}{quote(place, safe='/:')}/changes"

    def url(self, path: str = "", /, *, of: str | None = None, **query: object) -> str:
        """Return the address of a page of this instance, or `of` another one. Members that are None are left out."""
        if of is not None:
            place = "" if of == DEFAULT_INSTANCE else f"/i/{of}"
        else:
            place = f"/i/{self.instance}" if "instance" in self.request.path_params else ""
        given = {name: value for name, value in query.items() if value is not None and value != ""}
        return self.at_root + quote(f"{place}/ui{path}", safe="/:") + (f"?{urlencode(given)}" if given else "")

    def query(self, *known: str) -> Query:
        """Return the query parameters. InvalidInputError for one that is not known."""
        return Query(self.request, known)

    def field(self, name: str) -> str:
        """Return a member of the form, without spaces around it. InvalidInputError if it is missing."""
        value = self.form.get(name, "").strip()
        if not value:
            raise InvalidInputError(f"{name} is missing: fill it in")
        return value
