"""What a sync callable does for an async caller."""

from __future__ import annotations

import asyncio
import threading

from turn_journal_runtime.flow import in_thread


def test_a_caller_that_is_cancelled_twice_still_waits_for_the_thread() -> None:
    """Nothing may go on as if a callable had ended that is still at work."""
    begun, end, ended = threading.Event(), threading.Event(), threading.Event()
    interrupts: list[int] = []

    def work() -> None:
        begun.set()
        end.wait(20)
        ended.set()

    async def main() -> None:
        caller = asyncio.create_task(in_thread(work, interrupt=lambda: interrupts.append(1)))
        await asyncio.to_thread(begun.wait, 20)
        for _ in range(3):
            caller.cancel()
            await asyncio.wait([caller], timeout=0.05)
            assert not caller.done()
        end.set()
        await asyncio.wait([caller], timeout=20)
        assert caller.cancelled()
        assert ended.is_set()

    asyncio.run(main())
    assert interrupts == [1]
