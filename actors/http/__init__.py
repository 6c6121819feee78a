"""The HTTP face: Starlette routes over the same handles that Python users have."""
