"""Digests of how a host is configured, by which two processes of one store find out in what they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from tocsin.dispatch.catalog.catalog import Catalog

_SCALARS: Final = (str, bytes, int, float, bool, type(None))
OWN: Final = frozenset({"tracing"})
"""Options in which processes may differ: what another does with its spans changes nothing for this one."""


def digests(configured: Mapping[str, object], key: str) -> dict[str, str]:
    """Return a keyed digest of each value: who knows the key learns whether two values are equal, and nothing else."""
    secret = key.encode()[:64]
    return {
        name: blake2b(repr(_shape(value)).encode("utf-8", "replace"), key=secret, digest_size=16).hexdigest()
        for name, value in configured.items()
        if name not in OWN
    }


def _shape(value: object) -> object:
    """Return what two processes have in common that run the same code: values as they are, functions by their names."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, Catalog):
        return sorted([*value.functions, *value.workflows])
    if isinstance(value, Mapping):
        return sorted((str(name), _shape(one)) for name, one in value.items())
    if isinstance(value, Sequence):
        return [_shape(one) for one in value]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"
