"""`GET /metrics`: what a process did and how it stands, for Prometheus."""
