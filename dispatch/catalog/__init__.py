"""The catalog: which paths there are, and what args each takes. Pure: it knows no store, no host and no HTTP."""
