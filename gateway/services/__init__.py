"""What an operator, or a person for themselves, can do: one service for each namespace.

The API, the dashboard and the command line ask the same services. A service knows who asks (`Caller`) and never how:
nothing of HTTP or of a terminal stands here.
"""
