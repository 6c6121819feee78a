"""Schedules: recurring definitions whose occurrences become jobs. Rows and turns of the scheduler actor."""
