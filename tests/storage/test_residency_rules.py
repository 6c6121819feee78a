"""Rules of residency: each name has one store, and rules that say otherwise are refused."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import SettingsError
from tocsin.storage.memory import MemoryProvider
from tocsin.storage.residency.opening import named_stores
from tocsin.storage.residency.rules import Rules, common

NAMES = st.text("ab-", min_size=1, max_size=6).filter(lambda name: name[0] != "-")
PATTERNS = st.text("ab-*", min_size=1, max_size=5).filter(lambda pattern: pattern[0] != "-")


def matches(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern.replace("*", ".*"), name) is not None


@given(PATTERNS, PATTERNS, NAMES)
def test_a_name_that_two_patterns_match_is_found_and_only_then(one: str, other: str, name: str) -> None:
    found = common(one, other)

    if found is not None:
        assert matches(one, found)
        assert matches(other, found)
    else:
        assert not (matches(one, name) and matches(other, name))


@given(st.dictionaries(PATTERNS.filter(lambda pattern: pattern != "*"), st.sampled_from(["eu", "us"])), NAMES)
def test_rules_that_are_accepted_give_each_name_one_store_in_whatever_order(rules: dict[str, str], name: str) -> None:
    try:
        ordered = Rules.of(["eu", "us"], rules)
    except SettingsError as error:
        assert "both match" in error.message
        return
    shuffled = list(rules.items())
    Random(name).shuffle(shuffled)

    assert ordered.store_of(name) == Rules.of(["us", "eu"], dict(shuffled)).store_of(name)
    expected = {store for pattern, store in rules.items() if matches(pattern, name)}
    assert {ordered.store_of(name)} == (expected or {"refuse"})


@pytest.mark.parametrize(
    ("stores", "rules", "said"),
    [
        (["default", "eu"], {"eu-*": "ue"}, "ue' is not|names the store 'ue'"),
        (["default", "eu"], {"eu-*": "eu", "*-test": "default"}, "both match 'eu--test'|both match 'eu-test'"),
        (["default", "eu"], {"e?": "eu"}, r"\* stands for any text, not 'e\?'"),
        (["default", "EU"], {}, "a store must have a name"),
        (["refuse"], {}, "is not 'refuse'"),
        ([], {}, "at least one store"),
    ],
)
def test_wrong_rules_are_refused_with_the_reason(stores: list[str], rules: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        named_stores({name: MemoryProvider() for name in stores}, rules)
