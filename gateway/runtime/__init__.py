"""What every room uses while it runs: spans, logs, failpoints, backoff."""
