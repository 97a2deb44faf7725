"""The schemas that the core was built with, and whether an answer fits them.

`jsonschema-rs` says yes or no, compiled once for each method when it is first used; `jsonschema` is asked only for the
words when it says no. Specified in runtime.md, section 1.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import ProtocolError, RuntimeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PROTOCOL_VERSION", "check_ready", "checked_result", "core_path", "load", "prepare_check", "schemas_digest"]

#: The version of the protocol that this side speaks: docs/protocol.md.
PROTOCOL_VERSION: Final = 1

_CORE: Final = Path(__file__).parents[1] / "_core"
_SCHEMAS: Final = _CORE / "schemas"
_READY: Final = "runtime.ready"


def core_path(asked: str | None = None) -> str:
    """The bundle that Node runs: the one that was asked for, or the one this package carries.

    Raises:
        RuntimeUnavailableError: `core_missing`, when there is none.
    """
    path = _CORE / "core.mjs" if asked is None else Path(asked).absolute()
    if not path.is_file():
        raise RuntimeUnavailableError(
            f"The core is missing at {path}: reinstall turn-journal-runtime, or run `npm run build` in a checkout.",
            kind="core_missing",
            details={"path": str(path)},
        )
    return str(path)


@cache
def schemas_digest() -> str:
    """SHA-256 over the schema files, by name: name, newline, bytes, newline. The core was built with the same."""
    from hashlib import sha256

    digest = sha256()
    for path in sorted(_SCHEMAS.glob("*.json"), key=lambda path: path.name):
        digest.update(path.name.encode() + b"\n" + path.read_bytes() + b"\n")
    return digest.hexdigest()


@cache
def load(name: str) -> Any:
    """One schema file, by its name without `.json`."""
    import orjson

    return orjson.loads((_SCHEMAS / f"{name}.json").read_bytes())


#: Method → whether a result fits; filled as methods are used.
_checks: dict[str, Callable[[Any], bool]] = {}


def checked_result(method: str, result: Any) -> Any:
    """The result itself, when it fits the method's schema.

    Raises:
        ProtocolError: It does not; the message is the best match of the validator.
    """
    fits = _checks.get(method)
    if fits is None:
        fits = _checks[method] = _validator(f"{method}.result").is_valid
    if not fits(result):
        raise _misfit(f"{method}.result", result, f"The core's answer to {method}")
    return result


def prepare_check() -> None:
    """Loads and computes beforehand what `check_ready` needs."""
    _validator(_READY)
    schemas_digest()


def check_ready(ready: Any) -> None:
    """Refuses a core that does not speak this side's protocol with this side's schemas.

    Raises:
        ProtocolError: `protocol_mismatch` or `schemas_mismatch`, saying which side to upgrade; or a misfit.
    """
    if not _validator(_READY).is_valid(ready):
        raise _misfit(_READY, ready, "What the core says at its start")
    theirs, ours = ready["protocol"], PROTOCOL_VERSION
    if theirs != ours:
        side = "the core" if theirs < ours else "the Python package"
        raise ProtocolError(
            f"The core speaks protocol {theirs} and the Python package {ours}: upgrade {side}.",
            kind="protocol_mismatch",
            details={"core": theirs, "python": ours},
        )
    if ready["schemas"] != schemas_digest():
        raise ProtocolError(
            f"The core (version {ready['version']}) was built with other schemas than this Python package carries: "
            "reinstall turn-journal-runtime, or run `npm run build` in a checkout.",
            kind="schemas_mismatch",
            details={"core": ready["schemas"], "python": schemas_digest(), "version": ready["version"]},
        )


@cache
def _validator(name: str) -> Any:
    from jsonschema_rs import validator_for

    return validator_for(load(name))


def _misfit(name: str, value: Any, what: str) -> ProtocolError:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    match = best_match(Draft202012Validator(load(name)).iter_errors(value))
    path = match.json_path if match is not None else "$"
    # The validator's own words quote the value, which may be a journal's.
    rule = f"it breaks `{match.validator}`" if match is not None else "it does not fit"
    return ProtocolError(
        f"{what} does not fit its schema: {rule} at {path}.",
        kind="response_invalid",
        details={"schema": name, "path": path, "rule": str(match.validator) if match is not None else None},
    )
