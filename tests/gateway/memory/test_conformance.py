"""Both providers pass the one suite; the Markdown one with both journals."""

import pytest

from gateway.memory.in_memory import InMemoryProvider
from gateway.protocols import EditableMemory
from tests.conformance.memory import MemoryConformance


class TestMarkdown(MemoryConformance):
    @pytest.fixture
    def provider(self, markdown):
        return markdown()


class TestInMemory(MemoryConformance):
    @pytest.fixture
    def provider(self):
        return InMemoryProvider()


def test_both_can_be_edited(markdown):
    assert isinstance(markdown(), EditableMemory)
    assert isinstance(InMemoryProvider(), EditableMemory)
