"""The rows of one scheduler and what memory knows of them; the turn that changes both."""
