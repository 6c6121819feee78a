"""Reads of committed rows, outside of turns: lists, why, queue counts, results, health."""
