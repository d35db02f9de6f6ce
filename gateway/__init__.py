"""Ethos Gateway: one AI agent, met on every channel. Start with DESIGN.md beside this file."""

__version__ = "0.1.0"
