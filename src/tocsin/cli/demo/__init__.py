"""`tocsin demo`: a host, a receiver and a worker in one process."""
