"""A few seconds of Schemathesis; `python -m tests.http.fuzz --examples 2000` takes longer."""

from __future__ import annotations

from tests.http.fuzz import bridged, fuzz

EXAMPLES = 4
SEED = 1
OTHER_PLACE = "_in_instance"


def test_no_request_is_answered_otherwise_than_the_document_says() -> None:
    """Right ones and wrong ones, the same every time; under `/i/{instance}`, and the one route that is not there."""
    with bridged("memory:") as (bridge, _):
        asked = fuzz(bridge, EXAMPLES, seed=SEED, only=lambda name: name.endswith(OTHER_PLACE) or name == "instances")
    assert len(asked) == 69
    assert bridge.answers[200] > 50
    assert bridge.answers[400] > 50
