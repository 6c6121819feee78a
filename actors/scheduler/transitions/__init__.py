"""What each event makes of jobs: submit, claim, settle, complete, chains, bulk retries."""
