"""Every mutant can still be made: what it breaks stands in the source as it says, once."""

from __future__ import annotations

import pytest

from tests.mutants.breaking import faults
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants_schedules import Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_that_a_mutant_replaces_is_there(mutant: Mutant) -> None:
    assert faults(mutant) == [], "adapt this mutant"


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
