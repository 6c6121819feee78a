"""Build the documentation site into `build/site`: `python -m scripts.site`. Any warning or dead link is an error."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from scripts.site import built, llms, staging

CONFIG: Final = staging.ROOT / "zensical.toml"


def main() -> None:
    project = tomllib.loads(CONFIG.read_text("utf-8"))["project"]
    pages, site = staging.ROOT / project["docs_dir"], staging.ROOT / project["site_dir"]
    written = staging.stage(pages)
    lost = set(written) - set(in_nav(project["nav"]))
    missing = sorted(page for page in lost if not page.startswith(("files/", "decisions/0")))
    if missing:
        raise SystemExit(f"zensical.toml: the navigation lacks {', '.join(missing)}")
    (pages / llms.NAME).write_text(llms.text(project["nav"], pages), "utf-8")
    build()
    (site / "sitemap.xml").unlink(missing_ok=True)  # empty, because the site has no address of its own
    for page in written:  # beside the HTML, for programs that read
        (site / page).write_bytes((pages / page).read_bytes())
    found = list(built.faults(site))
    if found:
        raise SystemExit("\n".join(found))
    print(f"{len(written)} pages in {site.relative_to(staging.ROOT)}; start with {site / 'index.html'}")


def in_nav(nav: list[Any]) -> list[str]:
    """Return the pages of a navigation."""
    values = [value for entry in nav for value in entry.values()]
    return [page for value in values for page in ([value] if isinstance(value, str) else in_nav(value))]


def build() -> None:
    """Run the generator; what it says goes to the terminal, and a warning ends the build."""
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run([program, "build", "--clean", "--strict"], cwd=staging.ROOT, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
