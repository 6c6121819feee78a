"""The rehearsal: what the schedulers of a store would do until an instant, on a copy, in virtual time."""
