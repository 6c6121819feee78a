"""Draw docs/pictures/demo.svg from a real run of `tocsin demo` in a terminal: `python -m scripts.demo_picture`."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

PICTURE: Final = Path(__file__).parents[1] / "docs" / "pictures" / "demo.svg"
COLUMNS: Final = 96
FRAME: Final = "\x1b[36m╭─"
AFTERWARDS: Final = "Try next"
FORMAT: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img"
     aria-label="tocsin demo: the last second of a run, and what it checked">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
    }}
    .{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""
"""What rich fills in; its own loads fonts from another host."""


def recorded() -> str:
    """Run the demo in a terminal of its own, and return all that it wrote."""
    child, terminal = pty.fork()
    if child == 0:
        program = str(Path(sys.executable).with_name("tocsin"))
        os.execvp("env", ["env", "TERM=xterm-256color", f"COLUMNS={COLUMNS}", "LINES=40", program, "demo"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    written = io.BytesIO()
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end has gone
            break
        if not read:
            break
        written.write(read)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"the demo failed: {os.waitstatus_to_exitcode(status)}")
    return written.getvalue().decode("utf-8")


def last_frame(written: str) -> str:
    """Return the last picture of the live part, and the checks below it."""
    text = re.sub(r"\x1b\[\?25[hl]|\x1b\[\d*[AKJ]|\r", "", written)
    return text[text.rindex(FRAME) : text.index(AFTERWARDS)].rsplit("\n", 2)[0]


def drawn(text: str) -> str:
    """Return a terminal's text as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in text.rstrip().split("\n"):
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    return console.export_svg(title="$ tocsin demo", code_format=FORMAT, unique_id="demo")


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(last_frame(recorded())), "utf-8")
