"""Real models: the two wire formats, their HTTP client, prices and errors."""
