"""Words of the domain that every room above shares: sessions, roles, personalities, provenance, codes."""
