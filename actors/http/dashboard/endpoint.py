"""`Dashboard`: everything below `/ui`, from a request to a page, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tocsin.actors.http.access import READS, Caller, Gate, Visit
from tocsin.actors.http.cookies import FORM, set_cookie
from tocsin.actors.http.crowd import Crowd
from tocsin.actors.http.dashboard import files, login
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.forms import mark_of, new_mark, read_form
from tocsin.actors.http.dashboard.frame import Said, around, bare, say, unsay
from tocsin.actors.http.dashboard.headers import html, seen_elsewhere
from tocsin.actors.http.dashboard.once import ONCE, Once, new_once
from tocsin.actors.http.dashboard.page import Act, Elsewhere, Page, Place, Question
from tocsin.actors.http.dashboard.pages import PLACES
from tocsin.actors.http.dashboard.rendering import render
from tocsin.actors.http.endpoint import Endpoint
from tocsin.actors.http.errors import MethodNotAllowedError, headers_of, presentable
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.responses import Reply
from tocsin.actors.http.served import ServedHost
from tocsin.actors.scheduler.model.moving import moved
from tocsin.errors import InvalidInputError, NotFoundError

NAMES: Final = frozenset(one.name for one in PLACES if isinstance(one, Page))
TITLES: Final = {400: "That cannot be asked", 403: "Not for you", 404: "Not here", 409: "Not any more", 503: "Not now"}


@dataclass(frozen=True, slots=True)
class Failure:
    """The content of the page of an error."""

    title: str
    words: str
    code: str
    tokens: bool


@dataclass(frozen=True, slots=True)
class Asking:
    """A question as its page shows it: again, if what was filled in is `wrong`."""

    question: Question
    wrong: str
    given: Mapping[str, str]
    once: str


class Dashboard(Endpoint):
    """Answers GET with pages, and POST with what a form asked for."""

    def __init__(self, gate: Gate, host: ServedHost, crowd: Crowd) -> None:
        super().__init__(["GET", "POST"], gate)
        self._host, self._crowd = host, crowd
        self._once = Once(lambda: host.runtime.clock.monotonic())

    async def _answer(self, request: Incoming) -> Reply:
        path = self._path(request)
        if path.startswith(files.UNDER) and request.method in READS:
            self._gate.enter(request)
            return files.answer_file(path, request.scope.get("query_string", b""))
        if request.method not in (*READS, "POST"):
            raise MethodNotAllowedError(f"{request.path} takes GET and POST, not {request.method[:20]}")
        if request.method in READS and login.came_from_elsewhere(request):
            return self._again(request)
        return await self.answer(request, self._gate.enter(request, form=True))

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        """Answer a page, or do what a form asks for and go to the page that says so."""
        asked, path = Asked(request, self._host, self._gate, visit, self._crowd), self._path(request)
        if request.method == "POST":
            form = await read_form(request, visit, self._crowd)
            asked.once, asked.form = form.pop(ONCE, ""), form
        if path in login.PATHS:
            return await self._come_or_go(asked, path)
        if visit.refusal is not None and request.method in READS:
            return self._login(asked)
        place, asked.names = _find(path)
        if place.action or visit.refusal is not None:
            await asked.admit(place.action, None if place.resource is None else asked.names[place.resource])
        return await (self._act(asked, place) if isinstance(place, Act) else self._page(asked, place))

    async def _page(self, asked: Asked, page: Page) -> Reply:
        if asked.request.method == "POST":
            raise MethodNotAllowedError("this page has no form that is sent to it")
        value = await page.show(asked)
        if isinstance(value, Elsewhere):
            return seen_elsewhere(value.url)
        title = getattr(value, "title", page.title)
        return await self._framed(asked, page.name, page.template or f"{page.name}.html", title, value)

    async def _act(self, asked: Asked, act: Act) -> Reply:
        wrong = ""
        if (status := await asked.status()) is not None and status.moved_to is not None:
            raise moved(asked.instance, status.moved_to)
        if asked.request.method == "POST":
            try:
                return await self._once.do(
                    asked.once, {**asked.form, "": asked.request.path}, lambda: self._done(asked, act)
                )
            except InvalidInputError as error:  # of a field: the form is shown again, with what was filled in
                wrong = error.message
        question = await act.ask(asked)
        once = new_once(self._host.runtime.random)
        value = Asking(question, wrong, asked.form, once)
        return await self._framed(asked, act.name, "act.html", question.title, value)

    async def _framed(self, asked: Asked, name: str, template: str, title: str, value: Any) -> Reply:
        mark, headers = mark_of(asked.request), []
        if mark is None:
            mark = new_mark(self._host.runtime.random)
            headers.append(set_cookie(asked.request, FORM, mark))
        frame = await around(asked, name, title, mark, NAMES)
        if frame.said is not None:
            headers.append(unsay(asked.request))
        return html(render(template, asked, frame, value), 200, headers)

    async def _done(self, asked: Asked, act: Act) -> Reply:
        done = await act.do(asked)
        undo = asked.url(done.undo) if done.undo else ""
        return seen_elsewhere(done.back, [say(asked.request, Said(done.words, undo, done.changed))])

    # ---- Coming and going ------------------------------------------------------------------------

    async def _come_or_go(self, asked: Asked, path: str) -> Reply:
        if asked.request.method == "POST":
            if path == login.LEAVE:
                return login.leave(asked)
            reply = login.come(asked)
            return self._login(asked, login.UNKNOWN) if reply is None else reply
        return self._login(asked)

    def _again(self, request: Incoming) -> Reply:
        """Have the browser ask again, by a page of ours that holds nothing."""
        asked = Asked(request, self._host, self._gate, Visit(Caller()), self._crowd)
        return html(render("again.html", asked, bare("One moment"), login.address(asked)), 401)

    def _login(self, asked: Asked, wrong: str = "") -> Reply:
        mark = mark_of(asked.request) or new_mark(self._host.runtime.random)
        value = login.Login(next=login.wanted(asked), wrong=wrong, tokens=bool(self._gate.tokens))
        text = render("login.html", asked, bare("Log in", mark), value)
        return html(text, 401, [set_cookie(asked.request, FORM, mark)])

    # ---- What goes wrong -------------------------------------------------------------------------

    async def refuse(self, error: Exception, request: Incoming) -> Reply:
        """Make a page of a failed request. It reads nothing of the store, which may be what failed."""
        shown = presentable(error, request)
        asked = Asked(request, self._host, self._gate, Visit(Caller()), self._crowd)
        value = Failure(
            TITLES.get(shown.status, "That did not work"), shown.message, shown.code, bool(self._gate.tokens)
        )
        more = [(name.encode(), value.encode()) for name, value in headers_of(shown, request).items()]
        return html(render("error.html", asked, bare(value.title), value), shown.status, more)

    def _path(self, request: Incoming) -> str:
        rest: str = request.path_params.get("rest", "")
        return f"/{rest}".rstrip("/")


def _find(path: str, places: Sequence[Place] = PLACES) -> tuple[Page | Act, Mapping[str, str]]:
    for place in places:
        if (names := place.match(path)) is not None and isinstance(place, (Page, Act)):
            return place, names
    raise NotFoundError(f"the dashboard has no page {path[:200]!r}")
