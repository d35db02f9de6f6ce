"""A channel kind that is broken."""

raise RuntimeError("the coop is on fire")
