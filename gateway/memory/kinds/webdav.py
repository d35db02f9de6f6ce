"""`webdav`: the Markdown files in a folder of Nextcloud, ownCloud, Apache or another server with WebDAV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import httpx
from pydantic import Field, SecretStr

from gateway.config.values import Seconds, Section, Text, WebAddress
from gateway.memory.kinds import OwnServices
from gateway.memory.webdav.copies import COPIES_NAME
from gateway.memory.webdav.memory import WebdavMemory
from gateway.memory.webdav.server import WebdavServer

# A file that people let grow is still taken in, and then cut to what a document may hold.
_TIMES_LONGER = 4


class Config(Section):
    """Where the folder is.

    Attributes:
        url: of a folder that is there.
        username, password: for HTTP Basic; most servers give an app password for this.
        locks: lock each file while it is written; for a server without strong ETags.
        ca_file: of the authority that signed the server's certificate, where the system does not know it.
        timeout_s: for one question to the server.
        news_s: how long a turn waits to hear whether a document was edited there.
    """

    url: WebAddress
    username: Text | None = None
    password: SecretStr | None = None
    locks: bool = False
    ca_file: Path | None = None
    timeout_s: Annotated[Seconds, Field(le=60)] = 2
    news_s: Annotated[Seconds, Field(le=60)] = 0.3


def provider(config: Config, services: OwnServices) -> WebdavMemory:
    """The memory; the server is asked when it is opened."""
    auth = None
    if config.username is not None:
        password = "" if config.password is None else config.password.get_secret_value()
        auth = httpx.BasicAuth(config.username, password)
    verify: str | bool = True if config.ca_file is None else str(config.ca_file)
    client = httpx.AsyncClient(auth=auth, timeout=config.timeout_s, verify=verify)
    server = WebdavServer(
        client, config.url, max_bytes=_TIMES_LONGER * services.max_document_bytes, has_locks=config.locks
    )
    services.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return WebdavMemory(
        services.files(services.state_dir), server, copies=services.state_dir / COPIES_NAME, news_s=config.news_s
    )
