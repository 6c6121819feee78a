"""Several processes on one store: one holds it, the others reach it over a socket beside the file."""
