"""The lab: a user's own app and its hosts in virtual time, on the event loop that runs already."""
