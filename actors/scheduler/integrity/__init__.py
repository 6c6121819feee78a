"""Invariants of the rows, what a broken one means, and its repair."""
