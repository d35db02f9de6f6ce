"""Documents in the gateway's own database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.memory.markdown import MarkdownFileMemoryProvider
from gateway.memory.stored.memory import StoredMemory
from gateway.store.documents import SqlDocuments
from gateway.store.engine import Engine
from gateway.store.stores import Stores
from gateway.testing.memory import add, scope
from tests.conformance.documents import DocumentMemorySuite, DocumentSuite, project


@pytest.fixture
def engine(stores: Stores) -> Engine:
    return stores.engine


@pytest.fixture
def documents(engine: Engine) -> SqlDocuments:
    return SqlDocuments(engine, place="ethos.db")


@pytest.fixture
def worker(documents: SqlDocuments) -> Callable[[], StoredMemory]:
    return lambda: StoredMemory(documents)


class TestMemory(DocumentMemorySuite):
    @pytest.fixture
    def provider(self, documents: SqlDocuments) -> StoredMemory:
        return StoredMemory(documents)


class TestDocuments(DocumentSuite):
    pass


async def test_a_document_without_a_row_goes_on_from_the_history_of_its_file(
    stores: Stores, tmp_path: Path, worker: Callable[[], StoredMemory]
) -> None:
    """The history of Markdown files is in the same journal; each text in it can still be shown."""
    files = MarkdownFileMemoryProvider(tmp_path, stores.journal)
    await files.sync(scope("t1"), [add("memory", "In the file.")])
    await files.close()
    await worker().sync(scope("t2"), [add("memory", "In the database.")])
    assert await project(worker(), scope("t3")) == "In the database.\n"
    log = await worker().log(scope("t3"))
    assert [entry.action for entry in log] == ["add", "edit", "add"]
    assert [await worker().texts(entry.id) for entry in log] == [
        (b"", b"In the database.\n"),
        (b"In the file.\n", b""),
        (b"", b"In the file.\n"),
    ]
