"""One that was made for another version of the gateway."""

from pydantic import BaseModel

PLUGIN_API = 0


class Config(BaseModel):
    pass


def tools(_config: Config, _services: object) -> tuple[()]:
    return ()
