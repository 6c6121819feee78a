"""The actor runtime, the scheduler actor built on it, and the HTTP face."""
