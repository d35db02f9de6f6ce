"""The client of the HTTP API, for Python programs; they import it as `ethos`, see `src/ethos`.

Every operation is described once, in the module of its namespace; `styles` makes the awaited and the blocking client of
it. Nothing is loaded here: the server shares the models, and needs no client.
"""
