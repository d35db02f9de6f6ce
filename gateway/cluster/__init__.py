"""Many workers on one database: who holds what, and what one process tells the others."""
