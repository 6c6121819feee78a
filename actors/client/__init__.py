"""A scheduler far away: the port of its handle over HTTP, and the clients that give out handles."""
