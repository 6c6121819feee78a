"""State that the host owns and never stores: lanes, permits, the circuit, waiting claims, completions, result
waiters."""
