"""The runtime of actors: turns, gates, alarms, activations. It knows nothing of jobs."""
