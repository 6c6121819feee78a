"""Every host of a shared store serves every request: where an actor is, links between hosts, and mail."""
