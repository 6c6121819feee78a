"""Objects that users hold: the handle of one scheduler and of its schedules."""
