from collections.abc import Iterator

import pytest

from tests.servers import webdav


@pytest.fixture(scope="session")
def apache_server() -> Iterator[webdav.WebdavServer]:
    if webdav.MISSING_APACHE:
        pytest.skip(webdav.MISSING_APACHE)
    with webdav.apache("FileETag Digest") as server:
        yield server


@pytest.fixture(scope="session")
def wsgidav_server() -> Iterator[webdav.WebdavServer]:
    with webdav.wsgidav() as server:
        yield server
