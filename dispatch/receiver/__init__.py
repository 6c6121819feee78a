"""The receiver kit: what an app that is called back needs. It runs without a host, and knows none."""
