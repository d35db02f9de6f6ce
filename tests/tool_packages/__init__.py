"""Packages of tools: one that works, and such as are broken in one way each."""
