"""Servers of the Model Context Protocol that misbehave, for the tests of our client."""
