"""Templates, filled: everything is escaped, and a name that a template gets wrong is an error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tocsin.actors.http.dashboard import files, words
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.frame import Frame

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    """Return the environment of templates, made when the first page is asked for: few hosts ever show one."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(files.template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    named = ("iso", "exact", "relative", "span", "count", "amount", "size", "pace_s")
    made.filters.update({name: getattr(words, name) for name in named})
    return made


def render(name: str, asked: Asked, frame: Frame, value: Any) -> str:
    """Fill a template. It has the value as `v`, the frame as `frame`, macros as `parts`, and the request's `url`."""
    of_request = {"url": asked.url, "base": asked.root, "now": asked.now_ms if frame.page else 0}
    parts = _environment().get_template("parts.html").make_module(of_request)
    return _environment().get_template(name).render(v=value, frame=frame, parts=parts, **of_request)
