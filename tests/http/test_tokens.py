"""Tokens: how they are written, what they say when wrong, and that nothing shows their secret."""

from __future__ import annotations

import pickle

import pytest

from tocsin.actors.http import Token, parse_token, parse_tokens
from tocsin.actors.http.tokens import find_token
from tocsin.errors import SettingsError

HUSH = "Hush-0123456789"


def test_a_token_is_name_scopes_instances_and_secret() -> None:
    token = parse_token(f"ops:read+operate@tenant-*:{HUSH}:with:colons")
    assert (token.name, token.scopes, token.instances) == ("ops", frozenset({"read", "operate"}), "tenant-*")
    assert find_token([token], f"{HUSH}:with:colons") is token
    assert find_token([token], HUSH) is None
    assert parse_token("a:read:xxxxxxxx").instances is None


def test_several_come_as_a_list_or_as_one_text() -> None:
    texts = ["a:read:secret-a", "b:admin:secret-b"]
    parsed = parse_tokens(texts)
    assert parse_tokens(" a:read:secret-a , b:admin:secret-b,") == parsed
    assert parse_tokens([parsed[0], texts[1]]) == parsed
    assert [find_token(parsed, secret) for secret in ("secret-a", "secret-b", "", "é")] == [*parsed, None, None]


@pytest.mark.parametrize(
    ("pattern", "reached", "hidden"),
    [
        ("tenant-*", ["tenant-", "tenant-a"], ["Tenant-a", "a", "default"]),
        ("eu?*", ["eu:a", "eu-b"], ["eu", "us:a"]),
        ("default", ["default"], ["default2", "defaul"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_an_instance_pattern_reaches_what_it_matches(pattern: str, reached: list[str], hidden: list[str]) -> None:
    token = parse_token(f"t:read@{pattern}:xxxxxxxx")
    assert all(token.reaches(name) for name in reached)
    assert not any(token.reaches(name) for name in hidden)


def test_admin_may_everything_and_others_what_they_say() -> None:
    assert parse_token("t:admin:xxxxxxxx").may(frozenset({"operate"}))
    assert parse_token("t:read+work:xxxxxxxx").may(frozenset({"read"}))
    assert not parse_token("t:read+work:xxxxxxxx").may(frozenset({"schedule", "operate"}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HUSH, "must look like name:scope+scope"),
        (f"read:{HUSH}", "must look like name:scope+scope"),
        (f":read:{HUSH}", "must start with a name"),
        (f"a b:read:{HUSH}", "must start with a name"),
        (f"a::{HUSH}", "unknown scope"),
        (f"a:read+:{HUSH}", "unknown scope"),
        (f"a:everything:{HUSH}", "unknown scope 'everything'"),
        (f"a:{HUSH}:read", "unknown scope"),
        (f"{HUSH}:name:read", "unknown scope 'name'"),
        (f"a:read@:{HUSH}", "instance pattern"),
        (f"a:read@[ab]:{HUSH}", "instance pattern"),
        ("a:read:", "secret must be"),
        ("a:read:x", "the secret has 1 character, at least 8 are needed"),
        ("a:read:1234567", "the secret has 7 characters, at least 8 are needed"),
        (f"a:read:{HUSH} {HUSH}", "secret must be"),
        (f"a:read:{HUSH}é", "secret must be"),
    ],
)
def test_a_wrong_token_is_named_by_position_and_never_shown(text: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_tokens(["good:read:another-secret", text])
    assert "number 2 of 2" in str(caught.value)
    assert words in str(caught.value)
    assert HUSH not in repr(caught.value)


def test_names_and_secrets_are_not_shared() -> None:
    for second in ("a:admin:other-one", "a:read@tenant-*:other-one", "b:read:same-one", "a:read:same-one"):
        with pytest.raises(SettingsError, match="earlier one"):
            parse_tokens(["a:read:same-one", second])


def test_a_caller_may_have_two_secrets_while_it_changes_from_one_to_the_other() -> None:
    old, new = parse_tokens(["a:read+schedule@t-*:old-one-old", "a:schedule+read@t-*:new-one-new"])
    assert (old.name, old.grants) == (new.name, new.grants)
    assert [find_token([old, new], secret) for secret in ("old-one-old", "new-one-new")] == [old, new]


def test_nothing_shows_the_secret() -> None:
    token = parse_token(f"ops:admin:{HUSH}")
    assert repr(token) == "Token(name='ops', scopes=frozenset({'admin'}), instances=None)"
    assert HUSH.encode() not in pickle.dumps(token)
    assert isinstance(token, Token)
