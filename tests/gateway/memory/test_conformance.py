"""The Markdown files do what every memory must do, and all that one can do beside it."""

import pytest

from gateway.testing.memory import (
    EditableMemorySuite,
    ErasableMemorySuite,
    HistoricMemorySuite,
    MemoryProviderSuite,
    UnionSuite,
)


class TestMarkdown(MemoryProviderSuite, EditableMemorySuite, HistoricMemorySuite, ErasableMemorySuite, UnionSuite):
    @pytest.fixture
    def provider(self, markdown):
        return markdown()
