"""Frozen values and their codecs: rows, records, validation. Nothing here changes anything."""
