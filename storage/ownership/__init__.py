"""Ownership: which of several hosts on one store owns which actors, and what proves it at every commit."""
