"""The transactional outbox: jobs written in a user's own transaction, and brought from there into a scheduler."""
