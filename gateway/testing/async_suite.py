"""Classes of tests with an event loop of their own, so that pytest needs neither a plugin nor a setting for them."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import wraps
from typing import Any, ClassVar

import pytest

Test = Callable[..., Awaitable[None]]
# The plugin runs asynchronous fixtures in a loop of its own; then the tests must run in it, too.
_HAS_PLUGIN = "pytest_asyncio" in sys.modules


class AsyncSuite:
    """The `async def` tests of a subclass run with nothing but pytest.

    Each runs in a new event loop. Where pytest-asyncio is installed they run in its loop, so that fixtures may be
    asynchronous. Without it, a fixture that `entered` names may give a function that makes an asynchronous context
    manager, which the test enters in its own loop and leaves at the end.
    """

    entered: ClassVar[Mapping[str, Callable[[Any], AbstractAsyncContextManager[Any]]]] = {}
    """By the name of a fixture: what is entered for the value that the fixture gives."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the tests of the subclass such that pytest runs them."""
        super().__init_subclass__(**kwargs)
        for name, test in list(vars(cls).items()):
            if name.startswith("test") and inspect.iscoroutinefunction(test):
                setattr(cls, name, in_a_loop(test))


def in_a_loop(test: Test) -> Callable[..., object]:
    """The test as pytest can run it; its first argument is its `AsyncSuite`."""

    @wraps(test)
    async def with_fixtures(self: AsyncSuite, **fixtures: Any) -> None:
        async with AsyncExitStack() as stack:
            for name, enter in self.entered.items():
                if name in fixtures:
                    fixtures[name] = await stack.enter_async_context(enter(fixtures[name]))
            await test(self, **fixtures)

    @wraps(test)
    def in_new_loop(self: AsyncSuite, **fixtures: Any) -> None:
        asyncio.run(with_fixtures(self, **fixtures))

    return pytest.mark.asyncio(with_fixtures) if _HAS_PLUGIN else in_new_loop
