"""The command line: `tocsin serve`, `tocsin demo`, and commands that talk to a server.
Modules here import what is heavy inside their functions, so that `tocsin --help` answers at once."""

from tocsin.cli.group import main

__all__ = ["main"]
