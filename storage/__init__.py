"""Ordered key-value stores behind one seam. Knows bytes, order, atomic batches; no job, no time, no HTTP."""
