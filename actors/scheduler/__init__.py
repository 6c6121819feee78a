"""The scheduler: an actor that owns jobs, leases, pools and dead letters as rows."""
