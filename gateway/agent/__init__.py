"""The agent: one loop for all channels, its prompt, its tools, its models."""
