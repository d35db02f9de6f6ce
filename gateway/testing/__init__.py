"""Suites for what others bring: put a memory provider or an adapter of your own under them. They need pytest.

::

    class TestMine(MemoryProviderSuite, EditableMemorySuite):
        @pytest.fixture
        async def provider(self, tmp_path):
            ...
"""
