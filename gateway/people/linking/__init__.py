"""Linking: several accounts become one person, when both sides have proved that they are, and it can be taken back."""
