"""Two styles of client from one description: each operation is written once, as a coroutine.

For an `AsyncEthos` the coroutine is handed to the caller. For an `Ethos` it is run to its end at once: its transport
blocks, so it never waits for an event loop, and needs none. The types follow, because the descriptors below give
`Callable[P, T]` on the one and `Callable[P, Coroutine[Any, Any, T]]` on the other.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from gateway.sdk.request_sender import RequestSender

P = ParamSpec("P")
T = TypeVar("T")


class Async:
    """The style of `AsyncEthos`; only for the type checker."""


class Sync:
    """The style of `Ethos`; only for the type checker."""


S = TypeVar("S", Async, Sync)


class Namespace(Generic[S]):
    """Some operations of a client.

    Attributes:
        sender: sends requests; for the operations, not for callers.
    """

    def __init__(self, sender: RequestSender) -> None:
        self.sender = sender


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a blocking transport to its end.

    Raises:
        RuntimeError: it waits for an event loop, which is a fault of ours.
    """
    try:
        work.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    work.close()
    raise RuntimeError("a blocking client must not wait for an event loop")


class AsyncItems(AsyncIterator[T]):
    """What comes one after the other. `async with` closes the connection when you leave before the end."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def aclose(self) -> None:
        """Let go of it; there is nothing more afterwards."""
        await _close(self._items)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Items(Iterator[T]):
    """What comes one after the other. `with` closes the connection when you leave before the end."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items

    def __next__(self) -> T:
        try:
            return run(_next(self._items))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Let go of it; there is nothing more afterwards."""
        run(_close(self._items))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: Any) -> None:
    await items.aclose()


class operation(Generic[P, T]):  # noqa: N801 (it is used as a decorator)
    """One operation: a method that is awaited on the one client and returns on the other."""

    def __init__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Namespace[Async], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, instance: Namespace[Sync], owner: type) -> Callable[P, T]: ...
    def __get__(self, instance: Namespace[Any] | None, owner: type) -> Any:
        if instance is None:
            return self
        bound: Callable[P, Coroutine[Any, Any, T]] = MethodType(self.function, instance)
        if instance.sender.is_async:
            return bound

        @functools.wraps(bound)
        def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
            return run(bound(*args, **kwargs))

        return blocking


class listing(Generic[P, T]):  # noqa: N801 (it is used as a decorator)
    """An operation that gives one item after the other."""

    def __init__(self, function: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Namespace[Async], owner: type) -> Callable[P, AsyncItems[T]]: ...
    @overload
    def __get__(self, instance: Namespace[Sync], owner: type) -> Callable[P, Items[T]]: ...
    def __get__(self, instance: Namespace[Any] | None, owner: type) -> Any:
        if instance is None:
            return self
        bound: Callable[P, AsyncIterator[T]] = MethodType(self.function, instance)
        kind = AsyncItems if instance.sender.is_async else Items

        @functools.wraps(bound)
        def items(*args: P.args, **kwargs: P.kwargs) -> AsyncItems[T] | Items[T]:
            return kind(bound(*args, **kwargs))

        return items
