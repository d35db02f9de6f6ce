"""The Markdown files do what every memory must do."""

import pytest

from gateway.protocols import EditableMemory
from tests.conformance.memory import MemoryConformance


class TestMarkdown(MemoryConformance):
    @pytest.fixture
    def provider(self, markdown):
        return markdown()


def test_it_can_be_edited(markdown):
    assert isinstance(markdown(), EditableMemory)
