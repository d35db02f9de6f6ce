"""People: who may talk, who is who, and whose accounts are one person."""
