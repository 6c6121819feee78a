"""One scheduler as a file: written out of a store, and read into another one."""
