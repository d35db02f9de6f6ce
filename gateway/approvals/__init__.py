"""A yes to one exact call of a tool: when it is asked for, and what becomes of it."""
