"""The effects of events on jobs: submit, claim, settle, complete, chains, bulk retries."""
