"""Speech: what people record is heard, and what the agent answers is said."""
