"""One package per platform. Of the core, each imports `gateway.messages`, `protocols` and `errors` only."""
