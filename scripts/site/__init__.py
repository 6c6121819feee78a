"""The documentation site: pages of `docs/`, references made of the code, and the checks of what was built."""
