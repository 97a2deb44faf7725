"""The two clients: the same methods for threads and for asyncio, over one process and one implementation.

Light to import: what talks to a process is loaded with the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import forks  # noqa: F401 - a fork in the middle of the first call waits for what that loads
from ..observability import observed_call

if TYPE_CHECKING:
    from types import TracebackType

    from ..settings import Settings
    from .node import Node
    from .runtime import Patience
    from .supervisor import RestartPolicy, Supervisor

__all__ = ["AsyncRuntimeClient", "RuntimeClient", "default_async_client", "default_client"]

C = TypeVar("C", bound="_Client")


class _Options(NamedTuple):
    node: str | None = None
    core: str | None = None
    settings: Settings | None = None
    patience: Patience | None = None
    restarts: RestartPolicy | None = None


class _Link:
    """The supervisor behind one or two clients, made when it is first needed."""

    def __init__(self, options: _Options) -> None:
        self.options = options
        self.closed = False
        self._made: dict[None, Supervisor] = {}

    def supervisor(self) -> Supervisor:
        made = self._made.get(None)
        if made is None:
            from .supervisor import Supervisor

            # Of two threads that get here at once one wins; the other's has started nothing.
            made = self._made.setdefault(None, Supervisor(**self.options._asdict()))
            if self.closed:
                made.close()
        return made

    def close(self) -> None:
        self.closed = True
        for made in tuple(self._made.values()):
            made.close()


class _Client:
    """What both clients are made of."""

    def __init__(
        self,
        *,
        node: str | None = None,
        core: str | None = None,
        settings: Settings | None = None,
        patience: Patience | None = None,
        restarts: RestartPolicy | None = None,
    ) -> None:
        self._link = _Link(_Options(node, core, settings, patience, restarts))

    @classmethod
    def _sharing(cls: type[C], link: _Link) -> C:
        client = cls.__new__(cls)
        client._link = link
        return client

    @property
    def node(self) -> Node | None:
        """The Node that runs the core and where it was found; None before the first call."""
        return self._link.supervisor().node

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is none."""
        return self._link.supervisor().pid

    @property
    def for_threads(self) -> RuntimeClient:
        """A client for threads over the same process."""
        return RuntimeClient._sharing(self._link)

    def __reduce__(self) -> tuple[Any, ...]:
        # A process is nobody's to take along: the copy starts its own.
        if self._link is _default.link:
            return (default_client if isinstance(self, RuntimeClient) else default_async_client), ()
        return _copy, (type(self), self._link.options)

    def _described(self, info: dict[str, Any]) -> dict[str, Any]:
        node = self.node
        return {**info, "node": node._asdict() if node is not None else None}


class RuntimeClient(_Client):
    """Calls the core from threads.

    Safe to share between threads, and after a fork: the new process starts its own core. Can be pickled. Works in a
    thread in which an event loop runs, too, and blocks it; and in a signal handler, where a call that interrupts
    another one has a process of its own.

    Args:
        node: The Node to run: a path, or a name on PATH. None: what the settings give.
        core: Another bundle than the one this package carries.
        settings: Fixed settings. None: the environment's; how long a call may take is read at each call, the rest
            whenever a process is started.
        patience: How long `close` waits at each step, in seconds.
        restarts: When a process that died is started again.

    Specified in runtime.md, section 3.
    """

    def call(self, method: str, params: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        """The result of one method of the core, checked against its schema.

        Args:
            method: A method of runtime.md, section 2.
            params: Its parameters by name; JSON values only.
            timeout: Seconds to wait, the start of the process included; the setting `call_timeout` when None.

        Raises:
            InvalidJournalError: A parameter is no JSON within the limits, or the core refuses it.
            RuntimeUnavailableError: The core cannot be started, or the client is closed.
            RuntimeTimeoutError: No answer came in time. The client stays usable and drops the late answer.
            RuntimeCrashedError: The process died, and died again when the call was repeated.
            ProtocolError: The answer does not fit its schema.
            TurnJournalError: Any other error of the core, in its own class.
        """
        supervisor = self._link.supervisor()
        if supervisor.is_interrupted_here():
            with _copy(RuntimeClient, self._link.options) as aside:
                return aside.call(method, params, timeout=timeout)
        exchange = observed_call(method, supervisor.exchange(method, params, timeout))
        try:
            connection, request, deadline = next(exchange)
            while True:
                connection, request, deadline = exchange.send(connection.ask(request, deadline))
        except StopIteration as end:
            result: dict[str, Any] = end.value
            return result

    def info(self, *, timeout: float | None = None) -> dict[str, Any]:
        """What the core says of itself, with the Node it runs on: `{"source", "path", "version"}`."""
        return self._described(self.call("runtime.info", {}, timeout=timeout))

    def close(self) -> None:
        """Ends the process: asks, closes its input, waits, terminates, kills. Calls in flight get some seconds."""
        self._link.close()

    def __enter__(self) -> RuntimeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncRuntimeClient(_Client):
    """Calls the core from tasks of any asyncio event loop, also of several at once.

    The pipes belong to the bridge and not to the loop, so that any loop will do. A cancelled call leaves nothing open.

    Args:
        node: The Node to run: a path, or a name on PATH. None: what the settings give.
        core: Another bundle than the one this package carries.
        settings: Fixed settings. None: the environment's; how long a call may take is read at each call, the rest
            whenever a process is started.
        patience: How long `close` waits at each step, in seconds.
        restarts: When a process that died is started again.

    Specified in runtime.md, section 3.
    """

    async def call(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[str, Any]:
        """The result of one method of the core; see `RuntimeClient.call`."""
        import asyncio

        loop = asyncio.get_running_loop()
        exchange = observed_call(method, self._link.supervisor().exchange(method, params, timeout))
        try:
            connection, request, deadline = next(exchange)
            while True:
                connection, request, deadline = exchange.send(await connection.ask_async(request, deadline, loop))
        except StopIteration as end:
            result: dict[str, Any] = end.value
            return result

    async def info(self, *, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109
        """What the core says of itself; see `RuntimeClient.info`."""
        return self._described(await self.call("runtime.info", {}, timeout=timeout))

    async def close(self) -> None:
        """Ends the process without blocking the event loop; see `RuntimeClient.close`."""
        from asyncio import to_thread

        await to_thread(self._link.close)

    async def __aenter__(self) -> AsyncRuntimeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _copy(kind: type[C], options: _Options) -> C:
    return kind(**options._asdict())


class _Default:
    """The clients that the public functions use when they are given none; both share one process."""

    def __init__(self) -> None:
        self.link = _Link(_Options())
        self.client = RuntimeClient._sharing(self.link)
        self.async_client = AsyncRuntimeClient._sharing(self.link)


_default = _Default()


def default_client() -> RuntimeClient:
    """The client that is used where none is given: started on first use, closed at interpreter exit."""
    return _usable_default().client


def default_async_client() -> AsyncRuntimeClient:
    """The same for asyncio; it shares the process of `default_client`."""
    return _usable_default().async_client


def _usable_default() -> _Default:
    """A default that its user closed is replaced."""
    global _default
    if _default.link.closed:
        _default = _Default()
    return _default
