"""What a jail may do: isolation, limits, environment. Values only; nothing here touches the machine.

Policies are compared, too: an agent hands on at most what it has, so `weakness` says where one policy allows more
than another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from cenote_security.environment import Environment, is_digest, is_reference
from cenote_security.errors import UsageError
from cenote_security.network import Allow
from cenote_security.options import Definition, Options, Size, about, definitions, option, parse_size

Isolation = Literal["auto", "strict", "landlock", "gvisor", "none"]
ISOLATIONS: Final = get_args(Isolation)
Limits = Literal["auto", "cgroup", "watchdog"]

_CALL_SECONDS: Final = 600.0
"""Enough for any value that fits a jail. A call without any limit would wait for ever for a value that never ends."""

MAX_PROCESSES = 2**22
"""`PID_MAX_LIMIT` of Linux."""

_MAX_BYTES = 2**62
"""What the kernel takes for a limit, with room for what is added to it."""


def check_seconds(seconds: object, what: str) -> None:
    """Raises UsageError unless `seconds` is a positive finite number, or None. what: its name for the error."""
    if seconds is None:
        return
    if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise UsageError(f"{what} is a positive number of seconds, or None for no limit, not {seconds!r}")


@dataclass(frozen=True, kw_only=True)
class Mount(Options):
    """A host directory or file that the jail sees, read-only unless `writable`."""

    source: str = field(metadata=about(help="absolute path on the host"))
    target: str = option("", help="absolute path in the jail; the same as `source` by default")
    writable: bool = option(False, help="whether the jail may write there")

    def __post_init__(self) -> None:
        wrong = self.checked()
        if not wrong:
            object.__setattr__(self, "target", self.target or self.source)
            for path in (self.source, self.target):
                if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
                    wrong.note(UsageError(f"a mount needs absolute paths without '..': {path!r}"))
                    break
        wrong.raise_all()


@dataclass(frozen=True, kw_only=True)
class SandboxPolicy(Options):
    """What the jail of a runtime may do and use. Frozen; share one between as many runtimes as you like.

    docs/options.md has a table of what follows.
    """

    isolation: Isolation = option(
        "auto",
        flag="isolation",
        help="`strict` (namespaces, private root, Landlock, seccomp), `landlock` (no namespaces: Landlock, seccomp), "
        "`gvisor` (the namespaces of `strict`, and in them a kernel of the jail's own, by gVisor's `runsc`; slower, "
        "and nothing is preloaded), `none` (trusted code only), `auto` (`strict` or `landlock`)",
        # `auto` is the best that a machine has, so it may turn out to be what stands before it, never after.
        weakest_first=("none", "landlock", "auto", "strict", "gvisor"),
        not_for_tenants=("none", "landlock"),
    )
    memory: Size = option(
        "2GiB",
        flag="memory",
        help="memory of the whole jail, beyond what `preload` has filled; files in memory count",
        unit="bytes",
        at_least=64 * 2**20,
        at_most=_MAX_BYTES,
        why="a jail needs at least 64 MiB of memory to run Python",
    )
    cpus: float = option(
        1.0,
        flag="cpus",
        help="CPU time per time, of the whole jail, where control groups can hold it; and everywhere how many CPUs "
        "library thread pools inside may assume: `os.cpu_count()` is honest about it",
        above=0,
        tenants_at_most=1_024,  # in terms that every ledger can count
    )
    processes: int = option(
        128, flag="processes", help="processes and threads at once", at_least=8, at_most=MAX_PROCESSES
    )
    disk: Size = option(
        "1GiB",
        flag="disk",
        help="the private working directory and `/tmp` together",
        unit="bytes",
        at_least=2**20,
        at_most=_MAX_BYTES,
        why="a jail needs at least 1 MiB of disk",  # to the kernel, a tmpfs of size 0 has no limit
    )
    noexec: bool = option(
        False,
        flag="noexec",
        help="no file that the jail can write to runs as a program; at `strict` none can be mapped as code either",
        forbids=True,
    )
    output: Size = option(
        "10MiB",
        help="stdout and stderr that are kept of each cell (head and tail; the middle is dropped)",
        unit="bytes",
        at_most=_MAX_BYTES,
        tenants_at_most=64
        * 2**20,  # in the memory of the process that serves the runtime, which is in no quota
    )
    cell_timeout: float | None = option(
        None,
        flag="timeout",
        help="how long a cell may run when `execute` names no timeout",
        unit="seconds",
        above=0,
        none="no limit",
    )
    call_timeout: float | None = option(
        None,
        help="how long each other call may take, once it has its turn: those for variables and files, and the parts "
        "of a fork; all of them run code of the jail, such as a value's `__reduce__`",
        unit="seconds",
        above=0,
        none="the limit of a cell, and 600 where cells have none",
    )
    runtime_timeout: float | None = option(
        None,
        help="how long a runtime may live, from its first start on",
        unit="seconds",
        above=0,
        none="no limit",
    )
    limits: Limits = option(
        "auto",
        help="what holds the limits of the jail as a whole: `cgroup`, the kernel, exactly; `watchdog`, from outside, "
        "with some delay; `auto`, the first if the machine lets us, else the second",
        weakest_first=("watchdog", "auto", "cgroup"),
        not_for_tenants=("watchdog",),
    )
    network: Literal["none"] | Allow = option(
        "none",
        help='`"none"`, or `Allow([...])`: names that may be reached, through a proxy outside the jail; '
        "takes `strict`",
        wanted='either "none" or Allow(["pypi.org", ...])',
    )
    env: Mapping[str, str] = option(
        default_factory=dict,
        is_hashed=False,
        help="environment variables of the jail; they are not secrets: model-written code can read them",
        wanted="a mapping of names to strings; no '=' in names, no NUL character anywhere",
        valid=lambda env: all(map(_is_variable, env.items())),
        opens_nothing=True,
    )
    mounts: Sequence[Mount] = option(
        (), help="host paths that the jail may see", wanted="a list of Mount objects"
    )
    environment: Environment | str | None = option(
        None,
        flag="environment",
        metavar="NAME",
        help="packages of the jail's own, instead of those that this process has: an `Environment`, which is built "
        "when the first jail starts, or the name or digest of one that is built here",
        none="the packages of this process",
        wanted='an Environment(["pandas==2.2.3"]), or the name or digest of one that is built',
        valid=lambda given: not isinstance(given, str) or is_reference(given),
        is_later=True,
    )
    snapshots: Literal["auto", "none"] = option(
        "auto",
        help="`auto`: the state before each cell is kept in memory, so that a cell that takes its process down does "
        "not take the namespace with it, and `rollback` can go back; copies count as memory, and up to a quarter of "
        "`processes`. `none`: nothing is kept",
        is_later=True,
        opens_nothing=True,
    )
    preload: Sequence[str] = option(
        ("numpy", "pandas"),
        help="modules imported once, before jails are forked, so that importing them in a cell is free",
        wanted='a list of module names, such as ("numpy",)',
        opens_nothing=True,
    )
    tracking: bool = option(
        True,
        help="each result says what the cell read and wrote (`ExecutionResult.trace`). Where snapshots are kept, "
        "cells are looked at in any case, since that costs less than a copy for each; without it, results have "
        "no trace",
        wire="untracked",
        is_inverted=True,
        opens_nothing=True,
    )

    check_first: bool = option(
        False,
        flag="check-first",
        help="a cell that is certain to fail runs nothing: at its top level it comes to a name that nothing can have "
        "given a value, or to a call of a user's or an injected function whose arguments do not fit",
        is_later=True,
        opens_nothing=True,
    )

    def __post_init__(self) -> None:
        wrong = self.checked()
        if self.noexec is True and self.isolation == "none":
            wrong.note(
                UsageError(
                    'noexec=True takes a wall, and isolation "none" has none; use another isolation, or noexec=False'
                )
            )
        if isinstance(self.network, Allow) and self.isolation in ("landlock", "gvisor", "none"):
            wrong.note(
                UsageError(
                    f"network=Allow(...) takes a network namespace with a way out, which isolation "
                    f'{self.isolation!r} has not; use isolation="strict" or "auto"'
                )
            )
        wrong.raise_all()

    def __getstate__(self) -> dict[str, object]:
        """What pickle and copy take: of `env` a dictionary, since a read-only view of one can be neither."""
        return {**self.__dict__, "env": dict(self.env)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, env=MappingProxyType(state["env"]))

    @property
    def call_seconds(self) -> float:
        """What `call_timeout` comes to."""
        return self.call_timeout or self.cell_timeout or _CALL_SECONDS

    @property
    def has_credentials(self) -> bool:
        """Whether its network has some, which not every place may hold."""
        return isinstance(self.network, Allow) and bool(self.network.credentials)

    @property
    def millicpus(self) -> int:
        """`cpus` in whole thousandths, so that no sum drifts."""
        return round(self.cpus * 1000)

    @property
    def whole_cpus(self) -> int:
        """How many CPUs a library may assume: at least one, a fraction counts as a whole one."""
        return max(1, math.ceil(self.cpus))

    @property
    def memory_bytes(self) -> int:
        return parse_size(self.memory)

    @property
    def disk_bytes(self) -> int:
        return parse_size(self.disk)

    @property
    def output_bytes(self) -> int:
        return parse_size(self.output)


def _is_variable(item: tuple[str, str]) -> bool:
    name, text = item
    return name != "" and "=" not in name and "\0" not in name + text


@dataclass(frozen=True, slots=True, kw_only=True)
class Weakness:
    """The first field in which a policy allows more than another one."""

    field: str
    allowed: object
    wanted: object


def weakness(child: SandboxPolicy, parent: SandboxPolicy) -> Weakness | None:
    """Where `child` allows what `parent` does not; None if it is as strong or stronger.

    What cannot be compared counts as weaker unless it is equal.
    """
    for name, is_within in compared().items():
        wanted, allowed = getattr(child, name), getattr(parent, name)
        if not is_within(wanted, allowed):
            return Weakness(field=name, allowed=allowed, wanted=wanted)
    return None


def weakness_of_joined(has: SandboxPolicy, asked: SandboxPolicy) -> Weakness | None:
    """`weakness` of a runtime of a platform, which has compared the environment if it was asked for by name."""
    if isinstance(asked.environment, str) and not is_digest(asked.environment):
        asked = replace(asked, environment=has.environment)
    return weakness(has, asked)


def _at_most(wanted: float | None, allowed: float | None) -> bool:
    """Whether a child's limit is at most its parent's. None is no limit."""
    return (math.inf if wanted is None else wanted) <= (math.inf if allowed is None else allowed)


def _no_less(wanted: bool, allowed: bool) -> bool:
    """Whether a child forbids at least what its parent forbids."""
    return wanted or not allowed


def _as_strong_in(order: Sequence[str]) -> Callable[[str, str], bool]:
    def is_within(wanted: str, allowed: str) -> bool:
        if wanted not in order or allowed not in order:
            return wanted == allowed
        return order.index(wanted) >= order.index(allowed)

    return is_within


def _reaches_no_further(wanted: str | Allow, allowed: str | Allow) -> bool:
    if not isinstance(wanted, Allow):
        return True
    if not isinstance(allowed, Allow):
        return False
    return (
        all(_is_permitted(destination, allowed) for destination in wanted.destinations)
        and wanted.connections <= allowed.connections
        and wanted.rate <= allowed.rate
        and wanted.volume_bytes <= allowed.volume_bytes
        and wanted.credentials.items() <= allowed.credentials.items()
    )


def _is_permitted(destination: str, allowed: Allow) -> bool:
    """`*.a.example.com` ends as each name below it does, so that it is permitted just where they all are."""
    name, _, port = destination.rpartition(":")
    return allowed.permits(name, int(port))


def _sees_no_more(wanted: Sequence[Mount], allowed: Sequence[Mount]) -> bool:
    """A mount below one of the parent's is refused: a link there, which its jail cannot follow, may lead anywhere."""
    readable = {(mount.source, mount.target) for mount in allowed}
    writable = {(mount.source, mount.target) for mount in allowed if mount.writable}
    return all((mount.source, mount.target) in (writable if mount.writable else readable) for mount in wanted)


def _is_none_or_the_same(wanted: object, allowed: object) -> bool:
    """Another one might show another folder of the machine."""
    return wanted is None or wanted == allowed


def _rule(known: Definition) -> Callable[..., bool] | None:
    """How values of an option compare; None for one that opens nothing."""
    if known.option.opens_nothing:
        return None
    if known.option.weakest_first:
        return _as_strong_in(known.option.weakest_first)
    if known.option.forbids:
        return _no_less
    if Environment in known.options_classes:
        return _is_none_or_the_same
    if Allow in known.options_classes:
        return _reaches_no_further
    return _sees_no_more if Mount in known.options_classes else _at_most


@cache
def compared() -> Mapping[str, Callable[..., bool]]:
    """By option: whether what a child wants is within what its parent has. What matters most comes first: walls, then
    ways out, then amounts.

    Options that open nothing are left out: the environment and the preloaded modules come from the client itself; a
    snapshot is memory and a process like any other; and tracking, on or off, is no way out.
    """
    by_weight = sorted(
        definitions(SandboxPolicy), key=lambda known: (not known.choices, not known.options_classes)
    )
    rules = {known.name: _rule(known) for known in by_weight}
    return {name: rule for name, rule in rules.items() if rule is not None}
