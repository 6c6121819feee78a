"""Read the permission bits of files."""

from __future__ import annotations

from pathlib import Path


def rights_in(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
