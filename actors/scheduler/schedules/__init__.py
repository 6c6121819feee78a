"""Recurring schedules: slots, occurrences, changes, registration."""
