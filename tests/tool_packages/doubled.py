"""One whose tool has the name of another one."""

from collections.abc import Sequence

from pydantic import BaseModel

from gateway.tools.contract import Tool
from gateway.tools.own import CURRENT_TIME

PLUGIN_API = 1


class Config(BaseModel):
    pass


def tools(_config: Config, _services: object) -> Sequence[Tool]:
    return (CURRENT_TIME,)
