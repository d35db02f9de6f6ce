"""The way of a message, from accept to its receipt. `DESIGN.md` has the reading order."""
