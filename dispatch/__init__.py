"""One signed HTTP callback: build, sign, send, classify the answer, compute the next try. Knows no store."""
