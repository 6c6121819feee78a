"""SQLite: one writer, readers, a lock file that remembers the last commit, and checks of what lies on the disk."""
