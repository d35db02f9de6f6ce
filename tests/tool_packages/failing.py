"""One that fails while its tools are made, and quotes its secret."""

from pydantic import BaseModel, SecretStr

PLUGIN_API = 1


class Config(BaseModel):
    token: SecretStr


def tools(config: Config, _services: object) -> tuple[()]:
    raise OSError(f"no server takes {config.token.get_secret_value()}\nand more")
