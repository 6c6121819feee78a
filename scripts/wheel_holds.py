"""Check what a wheel holds: every module of the repository under `tocsin/`, its metadata, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
ROOMS = ("actors", "dispatch", "storage")
SHIPPED = (".css", ".html", ".js", ".json", ".py", ".svg")


def expected() -> set[str]:
    """The files of the repository that belong into the wheel, as they are named there."""
    face = [path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file()]
    rooms = [Path("tocsin", path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*")]
    return {path.as_posix() for path in (*face, *rooms) if path.suffix in SHIPPED or path.name == "py.typed"}


def faults(wheel: Path) -> list[str]:
    """What is in the wheel and should not be, and the other way round."""
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    return [
        *(f"{name} is in the wheel and should not be" for name in sorted(held - expected())),
        *(f"{name} is missing from the wheel" for name in sorted(expected() - held)),
    ]


def main(wheel: Path) -> None:
    if found := faults(wheel):
        sys.exit("\n".join(found))
    print(f"{wheel.name}: {len(expected())} files, all of them tocsin's")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
