"""The runtime of actors: turns, layers, alarms, activations. It knows nothing of jobs."""
