"""Keeps one process of the core: starts it on first use, again after a crash, and not for ever when it only crashes."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import RuntimeUnavailableError
from ..json_values import encode_params
from ..settings import LONGEST_SECONDS, PREFIX, Settings, current, current_call_timeout
from . import failures
from .child import Child, core_environment
from .frames import encode_request
from .node import Node, locate_node, require_supported
from .pumps import make_pump
from .runtime import SHUTDOWN, Patience, Runtime
from .schemas import check_ready, checked_result, core_path, prepare_check

if TYPE_CHECKING:
    from collections.abc import Generator

    from .calls import Outcome
    from .connection import Connection
    from .failures import Lost

#: Of all calls that are tried again, this one has to say so: what it does a second time, it does twice.
WRITE: Final = "turn_journal.write"
_NODE_FLAGS: Final = ("--disable-warning=ExperimentalWarning", "--max-semi-space-size=2")


class RestartPolicy(NamedTuple):
    """When a process that died is started again. Deaths count in a row, without one answer in between."""

    #: Seconds before the second start after a death; the first comes at once, and each later one waits twice as long.
    first_delay: float = 0.1
    max_delay: float = 2.0
    #: Deaths after which nothing is started for a while.
    max_deaths: int = 5
    cool_down: float = 30.0

    def delay(self, deaths: int) -> float:
        """Seconds to wait after so many deaths."""
        return 0.0 if deaths < 2 else min(self.first_delay * 2 ** (deaths - 2), self.max_delay)


class CoreLauncher:
    """Runs the core with the Node that the settings give."""

    def __init__(self, settings: Settings, core: str | None) -> None:
        self._settings = settings
        self._core = core
        #: The Node that was started.
        self.node: Node | None = None

    def start(self) -> Child:
        self.node = node = locate_node(self._settings)
        core = core_path(self._core)
        own = {PREFIX + name.upper() for name in Settings._fields}
        environment = {name: value for name, value in core_environment(os.environ).items() if name.upper() not in own}
        try:
            return Child(
                [node.path, *_NODE_FLAGS, core, "serve"],
                environment={**environment, **self._settings.variables()},
                folder=os.path.dirname(core),
            )
        except OSError as error:
            if error.filename is None:
                raise
            raise RuntimeUnavailableError(
                f"Node at {node.path} ({node.source}) cannot be started: {error}. Name another in TURN_JOURNAL_NODE.",
                kind="node_not_executable",
                details={"path": node.path, "source": node.source},
            ) from error

    def prepare(self) -> None:
        prepare_check()

    def check(self, ready: Any) -> None:
        check_ready(ready)
        if self.node is not None:
            self.node = self.node._replace(version=ready["node"])
            require_supported(self.node)


class Supervisor:
    """What a sync and an async client share.

    Args:
        settings: Fixed settings; None: the environment's.
        node: The Node to run, before the settings' one.
        core: Another bundle than the one this package carries.
        patience: How long the rungs of the stop ladder wait.
        restarts: How deaths are answered.
    """

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        node: str | None = None,
        core: str | None = None,
        patience: Patience | None = None,
        restarts: RestartPolicy | None = None,
    ) -> None:
        self._given = settings
        #: Those that the running process was started with.
        self.settings: Settings = settings or Settings()
        self._node = node
        self._core = core
        self._patience = patience or Patience()
        self._restarts = restarts or RestartPolicy()
        self._closed = False
        #: At most one; in a list, so that what happens when this object is dropped needs no reference to it.
        self._runtimes: list[Runtime] = []
        weakref.finalize(self, _let_go, self._runtimes).atexit = False
        self._start_over()
        _supervisors.add(self)

    def _start_over(self) -> None:
        """As if nothing had ever been started: at the beginning, and in the new process after a fork."""
        #: May be taken again by a signal handler that interrupts its holder.
        self._lock = threading.RLock()
        #: The thread that is starting a process.
        self._starter: int | None = None
        self._connection: Connection | None = None
        self._runtimes.clear()
        self._launcher: CoreLauncher | None = None
        self._deaths = 0
        self._last_death = 0.0
        self._last_lost: Lost | None = None

    def exchange(
        self, method: str, params: dict[str, Any], timeout: float | None
    ) -> Generator[tuple[Connection, bytes, float], Outcome | None, Any]:
        """One call, from its arguments to its checked result, but for the waiting.

        Yields whom to ask, what and until when; is sent the outcome. So threads and tasks wait in their own ways, and
        everything else is here once.
        """
        connection = self._connection
        if connection is None or connection.lost is not None:
            connection = self._started()
        settings = self.settings
        if timeout is None:
            timeout = settings.call_timeout if self._given else current_call_timeout()
        elif not 0 < timeout <= LONGEST_SECONDS:
            raise ValueError(f"timeout is seconds, more than 0 and at most {LONGEST_SECONDS:.0f}: {timeout!r}")
        deadline = time.monotonic() + timeout
        encoded = encode_params(params, settings.max_journal_bytes, settings.max_depth)
        request = encode_request(method, encoded)
        may_retry = method != SHUTDOWN
        while True:
            outcome = yield connection, request, deadline
            if isinstance(outcome, dict):
                if "error" in outcome:
                    raise failures.error_of(outcome["error"])
                return checked_result(method, outcome["result"])
            if outcome is None or outcome is failures.NO_ROOM:
                is_sent = outcome is None and connection.ready is not None
                raise failures.timed_out(method, timeout, sent=is_sent)
            if not (may_retry and outcome.may_retry):
                raise outcome.exception()
            may_retry = False
            if method == WRITE:
                # It may have been written, and followed by another's since: then it is not to be written again.
                since = time.time() - (time.monotonic() - (deadline - timeout))
                request = encode_request(method, b'%b,"retry_since":%d}' % (encoded[:-1], since * 1000))
            connection = self._started()

    def is_interrupted_here(self) -> bool:
        """Whether this thread is in a signal handler or a finalizer in the middle of a call of its own.

        Another call has to go by another process then: this one's is answered only afterwards.
        """
        connection = self._connection
        return self._starter == threading.get_ident() or (connection is not None and connection.is_held_here())

    @property
    def node(self) -> Node | None:
        """The Node of the process, once it is started."""
        return self._launcher.node if self._launcher is not None else None

    @property
    def pid(self) -> int | None:
        """The process, while there is one that is ready."""
        connection = self._connection
        alive = connection is not None and connection.lost is None and connection.ready is not None
        return connection.child.pid if connection is not None and alive else None

    def close(self) -> None:
        """Ends the process by the stop ladder; later calls fail with `client_closed`. Closing twice is no error."""
        with self._lock:
            self._closed = True
            self._connection = None
        for runtime in tuple(self._runtimes):
            runtime.stop(self._patience)

    def _started(self) -> Connection:
        """The connection of a process that is running or being started."""
        settings = self._given or current()
        with self._lock:
            if self._closed:
                raise failures.closed().exception()
            if self._connection is not None:
                if self._connection.lost is None:
                    return self._connection
                self._count_death(self._connection)
                self._connection = None
            self._refuse_in_crash_loop()
            self.settings = settings if self._node is None else settings._replace(node=self._node)
            self._launcher = CoreLauncher(self.settings, self._core)
            self._starter = threading.get_ident()
            runtime: Runtime | None = None
            try:
                runtime = Runtime(
                    self._launcher,
                    delay=self._restarts.delay(self._deaths),
                    start_timeout=settings.start_timeout,
                    max_queued=settings.max_queued,
                    make_pump=make_pump,
                )
                runtime.start()
                self._runtimes[:] = [runtime]
                if self._closed:  # by a signal handler, just now
                    raise failures.closed().exception()
                self._connection = runtime.connection
            except (OSError, RuntimeError) as error:
                raise failures.exhausted(error) from error
            except BaseException:
                # Interrupted: whoever asks next starts another one.
                if runtime is not None:
                    _let_go([runtime])
                raise
            finally:
                self._starter = None
            return runtime.connection

    def _count_death(self, connection: Connection) -> None:
        lost = connection.lost
        if lost is not None and lost.is_crash:
            self._deaths = 1 if connection.answered else self._deaths + 1
            self._last_death = time.monotonic()
            self._last_lost = lost

    def _refuse_in_crash_loop(self) -> None:
        if self._deaths >= self._restarts.max_deaths and self._last_lost is not None:
            wait = self._last_death + self._restarts.cool_down - time.monotonic()
            if wait > 0:
                raise failures.crash_loop(self._deaths, self._last_lost, wait)


_supervisors: weakref.WeakSet[Supervisor] = weakref.WeakSet()
#: Processes whose supervisor was dropped: they end by themselves, and the interpreter does not end before them.
_dropped: weakref.WeakSet[Runtime] = weakref.WeakSet()


def supervisors() -> list[Supervisor]:
    """Those that exist in this process."""
    return list(_supervisors)


def _let_go(runtimes: list[Runtime]) -> None:
    for runtime in runtimes:
        _dropped.add(runtime)
        runtime.let_go()


def _close_all() -> None:
    for supervisor in supervisors():
        supervisor.close()
    for runtime in list(_dropped):
        runtime.stop(Patience())


def _start_all_over() -> None:
    _dropped.clear()
    for supervisor in supervisors():
        supervisor._start_over()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all_over)
