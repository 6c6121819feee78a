"""When recurring things are due: cron expressions, time zones, and the instants they make. Knows no job, no store."""
