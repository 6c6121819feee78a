"""PostgreSQL as an engine that several hosts share: its layout, its connections, and one statement for each need."""
