"""The actor of a scheduler: its events, the end of every turn, and the service that hosts it."""
