"""One process of the core, from its start to its end: start deadline, greeting, service, stop ladder, reaping."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ..errors import TurnJournalError
from . import failures
from .connection import Connection
from .failures import Lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from .child import Child, Exit
    from .pumps import Pump

SHUTDOWN: Final = "runtime.shutdown"

#: What a process may take from the end of its output to its own end.
_EXIT_SECONDS: Final = 2.0


class Patience(NamedTuple):
    """Seconds that each rung of the stop ladder is given before the next one."""

    #: After the shutdown request.
    request: float = 1.0
    #: After its input is closed; the core gives calls in flight 5 s of it.
    end_of_input: float = 6.0
    #: After the request of the system to terminate.
    terminate: float = 2.0
    #: After the kill, until the process is given up.
    kill: float = 2.0


class Launcher(Protocol):
    """Knows what to run; whatever it raises, the callers see."""

    def start(self) -> Child:
        """Starts the process."""

    def prepare(self) -> None:
        """Does what can be done while the process starts."""

    def check(self, ready: Any) -> None:
        """Looks at what the process says of itself."""


class Runtime:
    """Starts in a thread of its own; what is asked meanwhile waits.

    Args:
        launcher: Starts the process.
        delay: Seconds to wait before the start.
        start_timeout: Seconds from the start until the process must be ready.
        max_queued: Calls that may be open.
        make_pump: Makes what reads and writes where no caller does.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        delay: float,
        start_timeout: float,
        max_queued: int,
        make_pump: Callable[[Connection], Pump],
    ) -> None:
        self.connection: Connection = Connection(make_pump, max_queued=max_queued)
        self.launcher = launcher
        self._delay = delay
        self._start_timeout = start_timeout
        self._child: Child | None = None
        self._stopping = threading.Event()
        self._over = threading.Event()

    def start(self) -> None:
        """Starts the thread, and with it the process."""
        threading.Thread(target=self._run, name="turn-journal-pump", daemon=True).start()

    def stop(self, patience: Patience) -> None:
        """Ends the process, one rung of the ladder after the other, until it is gone. May be called twice, by anybody.

        Calls in flight are answered if the core finishes them in time, and fail with `client_closed` if not. A signal
        handler that interrupted one of them waits for nothing: the process ends by itself after it.
        """
        connection = self.connection
        self._stopping.set()
        if not connection.closing:
            connection.closing = True
            connection.tell(SHUTDOWN)
            connection.pump.wake()
        if connection.is_held_here():
            connection.hang_up()
            return
        if self._over.wait(patience.request):
            return
        connection.hang_up()
        if self._over.wait(patience.end_of_input):
            return
        if self._child is not None:
            self._child.terminate()
        if self._over.wait(patience.terminate):
            return
        if self._child is not None:
            self._child.kill()
        self._over.wait(patience.kill)

    def let_go(self) -> None:
        """Lets the process end by itself, when nobody is left who could stop it."""
        self._stopping.set()
        self.connection.closing = True
        self.connection.hang_up()

    def _run(self) -> None:
        self.connection.threads.add(threading.get_ident())
        lost = failures.closed()
        try:
            lost = self._live()
        except TurnJournalError as error:
            lost = Lost.of(error)
        except (OSError, RuntimeError) as error:
            lost = Lost.of(failures.exhausted(error))
        finally:
            self.connection.end(lost)
            # Another thread may get the number.
            self.connection.threads.clear()
            self._over.set()

    def _live(self) -> Lost:
        if self._stopping.wait(self._delay):
            return failures.closed()
        self._child = child = self.launcher.start()
        try:
            self.connection.connect(child)
            self.launcher.prepare()
            why = self._greeting(child)
            if why is None:
                self.launcher.check(self.connection.ready)
                self.connection.pump.serve()
        except BaseException:
            child.kill()
            self._reap(child)
            raise
        exit_ = self._reap(child)
        if self._stopping.is_set():
            return failures.closed()
        if why is not None:
            return failures.not_started(why, exit_, child.last_lines())
        return failures.crashed(exit_, child.last_lines(), child.pid)

    def _greeting(self, child: Child) -> str | None:
        """Waits until the process is ready; says why when it never is."""
        late = threading.Event()

        def end() -> None:
            late.set()
            child.kill()

        watchdog = threading.Timer(self._start_timeout, end)
        watchdog.daemon = True
        watchdog.start()
        connection = self.connection
        try:
            while connection.ready is None:
                if not connection.receive():
                    return f"it was not ready within {self._start_timeout:g} s" if late.is_set() else "it ended"
        finally:
            watchdog.cancel()
        return None

    def _reap(self, child: Child) -> Exit:
        # From here on nobody may use the descriptors: their numbers will mean something else.
        connection = self.connection
        while not (connection.writing.take(connection.pump) and connection.reading.take(connection.pump)):
            time.sleep(0.001)
        return child.reap(_EXIT_SECONDS)
