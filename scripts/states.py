"""Write docs/states.md's tables from the tables in the code: `python -m scripts.states`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tocsin.actors.scheduler.transitions.states import EVENTS, OPERATIONS, STATES

PAGE = Path(__file__).parents[1] / "docs" / "states.md"
BLOCK = "<!-- {name}: written by `python -m scripts.states` -->\n"
END = "<!-- end -->\n"


def table(corner: str, states: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield f"| {corner} | " + " | ".join(states) + " |"
    yield "|---" * (len(states) + 1) + "|"
    for name, cells in rows.items():
        yield f"| `{name}` | " + " | ".join(cells) + " |"


def blocks() -> dict[str, Iterator[str]]:
    sources = STATES[:-1]
    events = {event: [moves.get(state, "") for state in sources] for event, moves in EVENTS.items()}
    return {
        "events": table("event", sources, events),
        "operations": table("operation", STATES, OPERATIONS),
    }


def generated(page: str) -> str:
    """The page with each of its blocks written anew."""
    for name, lines in blocks().items():
        head = BLOCK.format(name=name)
        pattern = re.compile(re.escape(head) + ".*?" + re.escape(END), re.DOTALL)
        text = head + "\n" + "\n".join(lines) + "\n\n" + END
        page, found = pattern.subn(text.replace("\\", r"\\"), page)
        if found != 1:
            raise SystemExit(
                f"docs/states.md has {found} blocks named {name!r}, not one: put {head!r} and {END!r} back"
            )
    return page


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text("utf-8")), "utf-8")
