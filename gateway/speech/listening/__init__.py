"""The services that hear, by `speech.listen.kind`. Each module has a `Config` and a `listen(config)`.

A package of somebody else has the same two and a `PLUGIN_API`, and is named with a dot in it; see docs/voice.md.
"""
