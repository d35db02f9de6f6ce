"""The gateway as a whole: its wiring, its life, and what a reload exchanges."""
