"""Ethos Gateway: one AI agent on every channel you use. Start with DESIGN.md beside this file."""

__version__ = "0.1.0"
