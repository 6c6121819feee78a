"""Several stores in one host: which of them an instance belongs to, and a provider that goes to that one."""
