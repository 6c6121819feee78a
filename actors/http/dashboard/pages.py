"""All pages and acts of the dashboard."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.dashboard import overview
from tocsin.actors.http.dashboard.page import Place

PLACES: Final[tuple[Place, ...]] = (*overview.PLACES,)
