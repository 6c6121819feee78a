"""The parts of `python -m bench run`, each with the rows it fills."""
