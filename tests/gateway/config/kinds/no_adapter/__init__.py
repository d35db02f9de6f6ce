"""A package that is no channel kind."""
