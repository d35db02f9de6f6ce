"""`webdav`: the Markdown files in a folder of Nextcloud, ownCloud, Apache or another server with WebDAV."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx
from pydantic import Field, SecretStr, ValidationInfo, field_validator

from gateway.config.addresses import refuse_other_schemes
from gateway.config.values import CaFile, Seconds, Section, Text
from gateway.files.atomic import make_private_directory
from gateway.memory.kinds import OwnServices
from gateway.memory.stored.memory import TIMES_LONGER
from gateway.memory.webdav.copies import COPIES_NAME
from gateway.memory.webdav.memory import WebdavMemory
from gateway.memory.webdav.server import WebdavServer

_FOLDER_NAME = ".folder"  # says of which folder on a server the files beside it are
_EXAMPLE = "https://cloud.example.org/remote.php/dav/files/ada/Ethos"


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

    url: Text
    username: Text | None = None
    password: SecretStr | None = None
    locks: bool = False
    ca_file: CaFile | None = None
    timeout_s: Annotated[Seconds, Field(le=60)] = 2
    news_s: Annotated[Seconds, Field(le=60)] = 0.3

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        refuse_other_schemes(url, ("http", "https"), _EXAMPLE)
        if "@" in urlsplit(url).netloc or urlsplit(url).query:
            raise ValueError("the address holds a password; expected `username` and `password` beside it")
        return url

    @field_validator("password")
    @classmethod
    def _has_username(cls, password: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if password is not None and info.data.get("username") is None:
            raise ValueError("is of no use without a name; expected `username` beside it")
        return password


def provider(config: Config, services: OwnServices) -> WebdavMemory:
    """The memory; the server is asked when it is opened."""
    auth = None
    if config.username is not None:
        password = "" if config.password is None else config.password.get_secret_value()
        auth = httpx.BasicAuth(config.username, password)
    verify = True if config.ca_file is None else ssl.create_default_context(cafile=config.ca_file)
    client = httpx.AsyncClient(auth=auth, timeout=config.timeout_s, verify=verify)
    server = WebdavServer(
        client, config.url, max_bytes=TIMES_LONGER * services.max_document_bytes, has_locks=config.locks
    )
    _make_own(services.state_dir, config.url)
    return WebdavMemory(
        services.files(services.state_dir), server, copies=services.state_dir / COPIES_NAME, news_s=config.news_s
    )


def _make_own(directory: Path, url: str) -> None:
    """Make the directory that of this folder; what is there of an earlier folder is put aside, and comes back with it.

    Else the documents that another folder does not have would count as deleted there.
    """
    note, mark = directory / _FOLDER_NAME, hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:12]
    if note.exists() and (earlier := note.read_text().strip()) != mark:
        directory.rename(directory.with_name(f"{directory.name}-{earlier}"))
    aside = directory.with_name(f"{directory.name}-{mark}")
    if aside.exists() and not directory.exists():
        aside.rename(directory)
    make_private_directory(directory)
    if not note.exists():
        note.write_text(f"{mark}\n")
        note.chmod(0o600)
