"""Tests for what others bring: put a memory provider or an adapter of your own under them.

- `gateway.testing.memory`: a class of tests for memory providers, and one for each further protocol;
- `gateway.testing.adapters`: the tests of adapters;
- `gateway.testing.hammer`: many processes on one memory, killed again and again; what is lost or doubled?

::

    class TestMine(MemoryProviderSuite, EditableMemorySuite):
        @pytest.fixture
        def provider(self, tmp_path):
            return MyMemory(tmp_path)

They need pytest, and no plugin; `pip install '.[testing]'` in a clone brings all that they import.
"""
