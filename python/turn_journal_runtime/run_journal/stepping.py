"""What each step of a run does, told once for both forms of `DurableRun`.

The sync form does what a step yields in the calling thread, the async form without blocking the event loop.
Specified in run-journal.md, section 4.
"""

from __future__ import annotations

import math
import os
import random
import shlex
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import orjson

from ..errors import (
    InvalidJournalError,
    JournalCorruptError,
    ReplayDivergenceError,
    TurnSuspended,
    UncertainEffectError,
)
from ..observability import observed_step
from ..typed_command import typed_command
from .driving import WITHIN
from .events import (
    KIND_APPROVAL,
    KIND_ITERATION,
    KIND_MODEL_DECISION,
    KIND_TOOL_CALL,
    KIND_TOOL_RESULT,
    KIND_VERIFICATION,
)
from .faults import recorded_failure
from .payload import DamagedPayload, decode, differing_fields, digest, encode
from .recording import Call, Recording, Step, Write, as_stored
from .steps import Absent, Attempt, Committed, Readback, went_on

if TYPE_CHECKING:
    from .drive import Drive

__all__ = ["DurableSteps", "as_number", "current_idempotency_key"]

T = TypeVar("T")
Arguments: TypeAlias = Mapping[str, Any] | Sequence[Any] | None
OnChange: TypeAlias = Literal["diverge", "ask_again"]

_key: ContextVar[str | None] = ContextVar("turn_journal_idempotency_key", default=None)
_SUFFIX: Final = b',"idempotency_key":'


def current_idempotency_key() -> str | None:
    """The key of the tool call that is running here, stable across every attempt at it; None outside of one.

    Specified in run-journal.md, section 4.
    """
    return _key.get()


class DurableSteps(Recording):
    """The steps that a drive can take."""

    def _memo(self, seq: int, drive: Drive, name: str, args: Arguments) -> Any:
        """The recorded result of a tool step whose call is, byte for byte, the recorded one; else `_MISS`."""
        events = drive.record.get(seq)
        if events is None or self._journal._redact is not None:
            return _MISS
        call, result = events.get(KIND_TOOL_CALL), events.get(KIND_TOOL_RESULT)
        if call is None or result is None:
            return _MISS
        try:
            issued = orjson.dumps({"name": name, "args": args})
        except TypeError:
            return _MISS
        # Equal text is an equal call, except that orjson writes NaN as null: that goes the long way.
        if not call.startswith(issued[:-1] + _SUFFIX) or "null" in issued.decode():
            return _MISS
        try:
            return decode(result)["result"]
        except (DamagedPayload, LookupError, TypeError):
            return _MISS

    def _tool(
        self,
        seq: int,
        drive: Drive,
        name: str,
        args: Arguments,
        fn: Callable[..., Any],
        restart_safe: bool,
        readback: Callable[[str], Any] | None,
        label: str | None,
    ) -> Step[Any]:
        step = self._take_tool(seq, drive, name, args, fn, restart_safe, readback, label)
        return observed_step(step, "tool", self._run_id, seq, name)

    def _take_tool(
        self,
        seq: int,
        drive: Drive,
        name: str,
        args: Arguments,
        fn: Callable[..., Any],
        restart_safe: bool,
        readback: Callable[[str], Any] | None,
        label: str | None,
    ) -> Step[Any]:
        if not isinstance(name, str) or not name:
            raise InvalidJournalError(f"A tool's name is a text, not {name!r:.80}.", kind="invalid_request")
        key = f"{self._run_id}:{seq}:{name}"
        issued = {"name": name, "args": {} if args is None else args}
        events = drive.record.get(seq, {})
        stored = events.get(KIND_TOOL_CALL)
        if stored is None:
            self._expect_nothing(seq, drive, events, KIND_TOOL_CALL, issued)
            self._must_be_open(drive)
            call = issued if self._journal._redact is None else self._identity(issued)
            call["idempotency_key"] = key
            if label is not None:
                call["tool_call_id"] = label
            yield Write(drive.insert, seq, KIND_TOOL_CALL, encode(call, is_identity=True).decode())
            return (yield from self._attempt_tool(seq, drive, key, args, fn))
        recorded = self._read(seq, KIND_TOOL_CALL, stored)
        here, there = (
            {"name": call.get("name"), "args": call.get("args")} for call in (self._identity(issued), recorded)
        )
        fields = differing_fields(there, here)
        if fields:
            self._diverge(seq, events, {"kind": KIND_TOOL_CALL, **here}, fields, f"tool {name!r}")
        result = events.get(KIND_TOOL_RESULT)
        if result is not None:
            return self._read(seq, KIND_TOOL_RESULT, result).get("result")
        attempt = drive.attempts.get(seq)
        if attempt is not None and went_on(attempt, drive.last_seq):
            raise recorded_failure(attempt.error_type or "Exception", attempt.message or "", self._run_id, seq)
        self._must_be_open(drive)
        key = str(recorded.get("idempotency_key", key))
        if attempt is not None and attempt.state == "absent":
            # The word that it did not happen holds for one attempt.
            yield Write(drive.attempt, seq, Attempt(KIND_TOOL_CALL, "again"))
        elif not restart_safe:
            answer: Readback | None = None
            if readback is not None:
                try:
                    answer = yield Call(readback, key)
                except Exception as error:
                    self._cut_short(error)
                    raise
            if isinstance(answer, Committed):
                try:
                    value, text = self._recorded({"result": answer.result})
                except InvalidJournalError as error:
                    self._halt(error)  # the effect has happened, and nothing on record says so
                    raise
                yield Write(drive.insert, seq, KIND_TOOL_RESULT, text)
                return value["result"]
            if not isinstance(answer, Absent):
                raise self._halt(_uncertain(self._run_id, seq, name, key, attempt, partial(self._typed, "settle", seq)))
        return (yield from self._attempt_tool(seq, drive, key, args, fn))

    def _attempt_tool(self, seq: int, drive: Drive, key: str, args: Arguments, fn: Callable[..., Any]) -> Step[Any]:
        token, within = _key.set(key), WITHIN.set((*WITHIN.get(), self))
        try:
            result = yield Call(fn, **args) if isinstance(args, (dict, Mapping)) else Call(fn, *(args or ()))
        except _STOPPED as error:
            self._halt(error)
            raise
        except Exception as error:
            yield self._failure(seq, drive, KIND_TOOL_CALL, error)
            raise
        finally:
            _key.reset(token)
            WITHIN.reset(within)
        try:
            value, text = self._recorded({"result": result})
        except InvalidJournalError as error:
            failure = InvalidJournalError(
                f"The tool at step {seq} of run {self._run_id!r} has run and its result cannot be recorded: "
                f"{error.message} Unless the loop goes on, the step stays uncertain until it is settled.",
                kind=error.kind,
                details={**error.details, "run_id": self._run_id, "seq": seq},
            )
            yield self._failure(seq, drive, KIND_TOOL_CALL, failure)
            raise failure from error
        snapshot = None
        if self._checkpoints is not None:
            snapshot = yield Write(self._checkpoints.snapshot)
            text = as_stored({**decode(text.encode()), "checkpoint_id": snapshot})
        yield Write(drive.insert, seq, KIND_TOOL_RESULT, text, snapshot)
        return value["result"]

    def _model(
        self, seq: int, drive: Drive, fn: Callable[..., Any], args: Sequence[Any], request: Any, on_change: OnChange
    ) -> Step[Any]:
        return observed_step(self._take_model(seq, drive, fn, args, request, on_change), "model", self._run_id, seq)

    def _take_model(
        self, seq: int, drive: Drive, fn: Callable[..., Any], args: Sequence[Any], request: Any, on_change: OnChange
    ) -> Step[Any]:
        if on_change not in ("diverge", "ask_again"):
            raise InvalidJournalError(
                f'on_change is "diverge" or "ask_again", not {on_change!r:.80}.', kind="invalid_request"
            )
        prints = self._fingerprints(request)
        events = drive.record.get(seq, {})
        stored = events.get(KIND_MODEL_DECISION)
        superseded: list[Any] = []
        if stored is None:
            self._expect_nothing(seq, drive, events, KIND_MODEL_DECISION, {"request": prints})
        else:
            recorded = self._read(seq, KIND_MODEL_DECISION, stored)
            fields = differing_fields(recorded.get("request", {}), prints, "request")
            if "response" not in recorded:
                fields = ["response"]
            if not fields:
                return recorded["response"]
            if on_change == "diverge":
                self._diverge(seq, events, {"kind": KIND_MODEL_DECISION, "request": prints}, fields, "a model request")
            superseded = [*recorded.pop("superseded", []), recorded]
        self._must_be_open(drive)
        within = WITHIN.set((*WITHIN.get(), self))
        try:
            response = yield Call(fn, *args)
            value, kept = self._recordable({"response": response})
        except _STOPPED as error:
            self._halt(error)
            raise
        except Exception as error:
            yield self._failure(seq, drive, KIND_MODEL_DECISION, error)
            raise
        finally:
            WITHIN.reset(within)
        kept = {"request": prints, **kept}
        if superseded:
            kept["superseded"] = superseded
        write = drive.replace if superseded else drive.insert
        yield Write(write, seq, KIND_MODEL_DECISION, as_stored(kept))
        return value["response"]

    def _typed(self, command: str, seq: int, options: str = "") -> str:
        """What to type to say something about a step. An address of a database may hold a password."""
        path = self._journal.path
        where = f" --db {shlex.quote(path)}" if os.path.isabs(path) else ""
        return typed_command(command, [self._run_id, str(seq)], where + options)

    def _approval(self, seq: int, drive: Drive, text: str, binds: Any) -> Step[Any]:
        if not isinstance(text, str) or not text:
            raise InvalidJournalError(f"A question is a text, not {text!r:.80}.", kind="invalid_request")
        asked, kept = self._recordable({"question": text, "binds": binds}, is_identity=True)
        issued = {**kept, "binds_digest": digest(asked["binds"])}
        events = drive.record.get(seq, {})
        stored = events.get(KIND_APPROVAL)
        suspended = TurnSuspended(
            f"Run {self._run_id!r} waits for a decision at step {seq}. Record it with `RunJournal.approve` or "
            f"`{self._typed('approve', seq)}`, then drive the run again.",
            details={"run_id": self._run_id, "seq": seq, "question": kept.get("question"), "binds": kept.get("binds")},
        )
        if stored is None:
            self._expect_nothing(seq, drive, events, KIND_APPROVAL, issued)
            self._must_be_open(drive)
            yield Write(drive.insert, seq, KIND_APPROVAL, as_stored(issued))
            raise self._halt(suspended)
        recorded = self._read(seq, KIND_APPROVAL, stored)
        names = ("question", "binds_digest")
        fields = differing_fields({n: recorded.get(n) for n in names}, {n: issued.get(n) for n in names})
        if not fields and "decision" in recorded:
            return recorded["decision"]
        self._must_be_open(drive)
        if fields and seq < drive.last_seq:
            shown = ["binds" if field == "binds_digest" else field for field in fields]
            self._diverge(seq, events, {"kind": KIND_APPROVAL, **issued}, shown, "a question")
        if fields:
            # Nothing was done on the old decision yet: the new arguments are a new question.
            issued["superseded"] = [*recorded.pop("superseded", []), recorded]
            yield Write(drive.replace, seq, KIND_APPROVAL, as_stored(issued))
        raise self._halt(suspended)

    def _iteration(self, seq: int, drive: Drive, index: int) -> Step[int]:
        if type(index) is not int:
            raise InvalidJournalError(f"An iteration is an integer, not {index!r:.80}.", kind="invalid_request")
        yield from self._once(seq, drive, KIND_ITERATION, {"index": index}, ("index",))
        return index

    def _verification(
        self, seq: int, drive: Drive, name: str, success: bool, details: Mapping[str, Any]
    ) -> Step[dict[str, Any]]:
        payload = {"name": name, "success": success, **details}
        return (yield from self._once(seq, drive, KIND_VERIFICATION, payload, ("name",)))

    def _value(
        self, seq: int, drive: Drive, name: str, make: Callable[[], T], read: Callable[[Any], T | None], **given: Any
    ) -> Step[T]:
        events = drive.record.get(seq, {})
        if KIND_TOOL_CALL in events:
            self._diverge(seq, events, {"kind": "value", "name": name}, ["kind"], f"the value {name!r}")
        made = {"name": name, **given, "result": None if events else make()}
        if self._journal._redact is not None and not events and self._kept(made).get("result") != made["result"]:
            raise InvalidJournalError(
                f"`redact` changes what step {seq} of run {self._run_id!r} gives ({name}), and a replay would give "
                "something else. Nothing was recorded: have it leave the `result` of now, random, uuid and sleeps as "
                "it is.",
                kind="invalid_request",
                details={"run_id": self._run_id, "seq": seq},
            )
        value = read((yield from self._once(seq, drive, KIND_TOOL_RESULT, made, ("name", *given))).get("result"))
        if value is None:
            raise self._halt(
                JournalCorruptError(
                    f"The record of run {self._run_id!r} has no value at step {seq} ({name}): something else wrote it, "
                    "or a `redact` that takes the `result` out. It was left as it is: have `redact` leave it, and fork "
                    "the run before that step to go on.",
                    details={"run_id": self._run_id, "seq": seq, "kind": KIND_TOOL_RESULT},
                )
            )
        return value

    def _now(self, seq: int, drive: Drive) -> Step[float]:
        return self._value(seq, drive, "now", time.time, as_number)

    def _random(self, seq: int, drive: Drive) -> Step[float]:
        return self._value(seq, drive, "random", random.random, as_number)

    def _uuid(self, seq: int, drive: Drive) -> Step[str]:
        return self._value(seq, drive, "uuid", lambda: str(uuid.uuid4()), _as_text)


_MISS: Final = object()
#: A run inside of a step has stopped, and goes on with it: that is no failure of the step.
_STOPPED: Final = (ReplayDivergenceError, TurnSuspended, UncertainEffectError)


def as_number(value: Any) -> float | None:
    """A number of JSON that has an end."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _uncertain(
    run_id: str, seq: int, tool: str, key: str, attempt: Attempt | None, typed: Callable[[str], str]
) -> UncertainEffectError:
    known = ""
    if attempt is not None and attempt.error_type is not None:
        ended = f"{attempt.error_type}: {attempt.message}" if attempt.message else attempt.error_type
        known = f" Its last attempt ended with {ended.rstrip('.'):.300}."
    choices = [
        f"settle({run_id!r}, {seq}, result=…)",
        f"settle({run_id!r}, {seq}, absent=True)",
        "declare the tool restart_safe=True",
        "declare a readback",
    ]
    return UncertainEffectError(
        f"Tool {tool!r} at step {seq} of run {run_id!r} may have run: it was begun with the key {key!r}, and no "
        f"outcome is recorded.{known} It was not run again. Find out with that key, then settle it, with "
        f"`RunJournal.settle` or on the command line: `{typed(' --result JSON')}` when it happened, "
        f"`{typed(' --absent')}` when it did not. Or declare the tool: restart_safe=True, or a readback.",
        details={"run_id": run_id, "seq": seq, "tool": tool, "idempotency_key": key, "choices": choices},
    )
