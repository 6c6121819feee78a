"""Benchmarks. `python -m bench lease` measures scheduling, firing and lateness on this machine; `--help` lists all."""
