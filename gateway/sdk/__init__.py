"""For programs that talk to a running gateway."""
