"""The receiver kit: what an app needs to receive callbacks. It runs without a host."""
