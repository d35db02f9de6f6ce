"""The services that speak, by `speech.speak.kind`. Each module has a `Config` and a `speak(config)`.

A package of somebody else has the same two and a `PLUGIN_API`, and is named with a dot in it; see docs/voice.md.
"""
