"""Places of tests of the storage room."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.storage.shared_places import PLACES, Connect


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def connect(request: pytest.FixtureRequest) -> Connect:
    """Give the way to a new store that several hosts share."""
    place: Callable[[pytest.FixtureRequest], Connect] = request.param
    return place(request)
