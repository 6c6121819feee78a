"""Every mutant can still be made, and the tests that must catch it are there."""

from __future__ import annotations

import re

import pytest

from tests.mutants.all import MUTANTS
from tests.mutants.breaking import ROOT, Mutant, faults


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_that_a_mutant_replaces_is_there(mutant: Mutant) -> None:
    assert faults(mutant) == [], "adapt this mutant"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_that_must_catch_a_mutant_are_there(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        defined = rf"^ *(?:async )?def {re.escape(name.partition('[')[0])}\("
        found = re.search(defined, (ROOT / file).read_text("utf-8"), re.MULTILINE) is not None
        assert name.startswith("test_") and found, f"there is no {test}"


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
