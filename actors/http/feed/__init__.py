"""The live feed over HTTP: one reader an instance and process, and all who watch through it."""
