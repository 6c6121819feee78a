"""Jitter, deploys and hours late: what is on time, what is late, and by how much."""

from __future__ import annotations
