"""Durable one-shot jobs on other schedulers and queues: at its instant, each posts 200 bytes to a receiver."""
