"""Every error that Cenote raises, typed by what the caller can do about it.

An error holds facts as attributes and builds its text in `__str__`: what was refused, why, and the next step.
What a user's own program does wrong inside a jail is never one of these; it is a field of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from cenote_security.printable import printable, shown_size
from cenote_security.verdict import INFRASTRUCTURE, TASK, Verdict, limit


class CenoteError(Exception):
    """Base of all errors raised by Cenote.

    Its text is printable: Python writes it to a terminal by itself, and the names and reasons in it come from jails,
    models and servers. Arguments and attributes hold these as they are.
    verdict: what it says of the task that it ended; see `Verdict`.
    """

    verdict: Verdict = INFRASTRUCTURE

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__str__" in vars(cls):  # here, so that no class of errors can forget it
            cls.__str__ = _printing(cls.__str__)  # type: ignore[method-assign]

    def __str__(self) -> str:
        return printable(super().__str__(), lines=True)


def _printing(text_of: Callable[[Any], str]) -> Callable[[Any], str]:
    @wraps(text_of)
    def printed(error: Any) -> str:
        return printable(text_of(error), lines=True)

    return printed


# -- usage: nothing ran -----------------------------------------------------------------------------------


class UsageError(CenoteError, ValueError):
    """An argument is wrong. Nothing ran. several: all that is wrong, where that is more than one thing."""

    several: tuple[UsageError | RejectedError, ...] = ()


class NameExistsError(UsageError):
    """`inject` met a name that the namespace already has."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the name {self.name!r} exists already; use update_variable({self.name!r}, ...) to replace it"


class UnknownNameError(UsageError):
    """The namespace does not have a variable of that name."""

    verdict = TASK

    def __init__(self, name: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(name, nearest)
        self.name = name
        self.nearest = nearest

    def __str__(self) -> str:
        nearest = ", ".join(self.nearest)
        hint = (
            f"; the nearest names are {nearest}" if nearest else "; `describe()` lists those that there are"
        )
        return f"no variable named {self.name!r:.200} in the namespace{hint}"


class NotTransferableError(UsageError):
    """A value cannot be sent into a jail by value."""

    verdict = TASK

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name!r} cannot be sent into a jail: {self.reason}"


class NotCopiedError(UsageError, TypeError):
    """Something that has its place in one process was to be pickled or copied. A TypeError, as `pickle` raises.

    kind: what it is. instead: what may be done.
    """

    def __init__(self, kind: str, instead: str) -> None:
        super().__init__(kind, instead)
        self.kind = kind
        self.instead = instead

    def __str__(self) -> str:
        return f"{self.kind} cannot be pickled or copied: {self.instead}"


class FileRefusedError(UsageError):
    """Something cannot be done with a file of a working directory, or with the local one of a transfer.

    path: as it was given, printable. reason: in the words of the kernel or of Cenote.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path!r}: {self.reason}"


class UnknownFileError(FileRefusedError):
    """There is no such file or folder."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "there is no such file or folder")


class FileTakenError(FileRefusedError):
    """There is a file of that name, and the caller did not allow replacing it."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "it exists already; pass overwrite=True to replace it")


class NotKeptError(UsageError):
    """There is no snapshot of that step or label. target: the one that was requested."""

    def __init__(self, target: int | str) -> None:
        super().__init__(target)
        self.target = target

    def __str__(self) -> str:
        labelled = isinstance(self.target, str)
        what = f"labelled {self.target!r}" if labelled else f"of the state after step {self.target}"
        return f"no snapshot {what} is kept; `snapshots()`, or `cenote runtime show`, lists those that are"


class UnknownEntryError(UsageError):
    """The caller's tenant has nothing of that name. Entries of other tenants give the same error.

    kind: such as `token` or `tenant`; runtimes and references have errors of their own.
    """

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        listed = _WHAT_THERE_IS.get(self.kind, "list what there is")
        return f"there is no {self.kind} {self.name!r:.200} here; {listed}"


_WHAT_THERE_IS = {
    "tenant": "`cenote tenant ls` lists what there is",
    "team": "`cenote team ls` lists what there is; one is made when it has a member, by `add`, and is set to work",
    "run": "`cenote team show NAME` lists those of a team",
    "job": "`cenote job ls` lists what there is",
    "task": "`cenote job results` gives the ids of tasks that are over",
    "environment": "`cenote env ls --address ADDRESS` lists what there is",
    "token": "`cenote token ls TENANT` lists what there is",
    "good token": "`cenote token ls TENANT` lists what there is",
    "step": "`state.history`, or `cenote runtime history`, has those that there are",
    "patch": "`plan.patch.id` is what a patch is called that this process has applied",
    "checkpoint": "`CheckpointStore(store)` lists them: `names()` of runtimes, `checkpoints(name)` of one",
}
"""What the caller can do when an entry does not exist, by kind."""


class EntryExistsError(UsageError):
    """The name is taken within the caller's tenant. kind: as in UnknownEntryError."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        use = _USE_IT.get(self.kind, "or use the one there is")
        return f"the {self.kind} {self.name!r} exists already; choose another name, {use}"


_USE_IT = {
    "runtime": "use the one there is, or end it with `cenote runtime rm`",
    "environment": "or remove that one with `cenote env rm`",
    "stored runtime": "or go on with the one there is by `PythonRuntime.open`",
}
"""Besides taking another name."""


class RuntimeClosedError(UsageError):
    """The runtime was closed, or belongs to the process that forked this one."""


# -- rejected by a policy: nothing ran --------------------------------------------------------------------


class RejectedError(CenoteError):
    """A policy or a rule refused the request. Nothing ran. several: see UsageError."""

    several: tuple[UsageError | RejectedError, ...] = ()


class RuntimeExpiredError(RejectedError):
    """The runtime has lived for as long as its policy allows. seconds: how long that is."""

    verdict = limit("time")

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"this runtime's time of {self.seconds:g} s is over (runtime_timeout); make a new one"


class WeakerSandboxError(RejectedError):
    """A sub-agent's sandbox would allow more than its parent's.

    agent: whose sandbox it is. field: of SandboxPolicy. wanted, allowed: what the policies of the two say there.
    """

    def __init__(self, agent: str, field: str, wanted: object, allowed: object) -> None:
        super().__init__(agent, field, wanted, allowed)
        self.agent = agent
        self.field = field
        self.wanted = wanted
        self.allowed = allowed

    def __str__(self) -> str:
        return (
            f"the sandbox of {self.agent!r} would be weaker than its parent's in {self.field}: {self.wanted!r}, "
            f"where the parent has {self.allowed!r}; give it a tighter one, or its parent a wider one"
        )


class WeakerRuntimeError(RejectedError):
    """A runtime that exists allows more than the sandbox that was asked for.

    runtime: its name. field: of SandboxPolicy. has, asked: what the two say there.
    """

    def __init__(self, runtime: str, field: str, has: object, asked: object) -> None:
        super().__init__(runtime, field, has, asked)
        self.runtime = runtime
        self.field = field
        self.has = has
        self.asked = asked

    def __str__(self) -> str:
        return (
            f"runtime {self.runtime!r} exists, and is weaker than `sandbox` in {self.field}: {self.has!r}, where "
            f"{self.asked!r} is asked for; join it without sandbox=, or take another name"
        )


class UnsafeValueError(RejectedError):
    """A value inside a jail is of a kind that a trusted process does not rebuild."""

    verdict = TASK

    def __init__(self, class_name: str, detail: str = "") -> None:
        super().__init__(class_name, detail)
        self.class_name = class_name
        self.detail = detail

    def __str__(self) -> str:
        why = f" ({self.detail})" if self.detail else ""
        return (
            f"a value of class {self.class_name} is not rebuilt outside its jail{why}; turn it into plain data, an "
            f"array or a frame in a cell, name the class with retrieve(..., classes=[...]) if it is a dataclass, a "
            f"pydantic model, an Enum or a plain class of yours, or take the risk of unpickling hostile bytes with "
            f"retrieve(..., trusted=True)"
        )


class MalformedValueError(RejectedError):
    """Bytes that claim to be an encoded value are not one. A jail sent them; nothing was built from them."""

    verdict = TASK


class NotAuthenticatedError(RejectedError):
    """The caller is not authenticated: no token, a wrong one, or one that is not valid any more.

    reason: in words for the holder. A stranger learns nothing from it: unknown, malformed and wrong tokens share one
    text, and only a caller with the right secret learns that it has expired or was revoked.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"not authenticated: {self.reason}"


class ScopeMissingError(RejectedError):
    """The token is good, but not for this. scope: what it would need. granted: what it has."""

    def __init__(self, scope: str, granted: tuple[str, ...]) -> None:
        super().__init__(scope, granted)
        self.scope = scope
        self.granted = granted

    def __str__(self) -> str:
        has = ", ".join(self.granted)
        return (
            f"this token has no scope {self.scope!r}, only {has}; use a token that has it, or ask the platform's "
            f"operator for one (`cenote token create TENANT --scope {self.scope}`)"
        )


THOUSANDTHS: Final = "thousandths of a CPU"
"""A unit of quotas."""


class QuotaExceededError(RejectedError):
    """A tenant has as much of something as it may have. Nothing ran.

    used, asked, limit: in the unit, which is empty for plain counts. remedy: what makes room.
    """

    verdict = limit("quota")

    def __init__(self, quota: str, used: int, asked: int, limit: int, unit: str, remedy: str) -> None:
        super().__init__(quota, used, asked, limit, unit, remedy)
        self.quota = quota
        self.used = used
        self.asked = asked
        self.limit = limit
        self.unit = unit
        self.remedy = remedy

    def __str__(self) -> str:
        used, limit, asked = map(self._shown, (self.used, self.limit, self.asked))
        return (
            f"the quota of {self.quota} is used up: {used} of {limit} are taken, {asked} more were asked for; "
            f"{self.remedy}, or ask the operator for a higher quota"
        )

    def _shown(self, amount: int) -> str:
        if self.unit == "bytes":
            return shown_size(amount)
        if self.unit == THOUSANDTHS:
            return f"{amount / 1000:g} CPUs"
        return f"{amount} {self.unit}".rstrip()


class SecretFileError(RejectedError):
    """A file that holds a secret cannot be trusted with it, or cannot be read or written. path: as it was given."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(str(path), reason)
        self.path = str(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path!r}: {self.reason}"


# -- unavailable: nothing ran, the machine or a peer cannot do it -----------------------------------------


class UnavailableError(CenoteError):
    """The machine or a service cannot do this now. Nothing ran."""


class IsolationUnavailableError(UnavailableError):
    """The policy asks for an isolation that this machine cannot give. Never downgraded silently."""

    def __init__(self, level: str, missing: tuple[str, ...], remedy: str) -> None:
        super().__init__(level, missing, remedy)
        self.level = level
        self.missing = missing
        self.remedy = remedy

    def __str__(self) -> str:
        return f"isolation {self.level!r} is not available here: {'; '.join(self.missing)}. {self.remedy}"


class JailStartError(UnavailableError):
    """A jail could not be started. Nothing ran.

    step: which part of the work failed, such as `mount /proc`. code: the errno, 0 when there was none.
    """

    def __init__(self, step: str, code: int, detail: str) -> None:
        super().__init__(step, code, detail)
        self.step = step
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return f"a jail could not be started: {self.step}: {self.detail}; run `cenote doctor` to see why"


class HistoryUnavailableError(UnavailableError):
    """The database of a runtime's history cannot be read or written, or is damaged. What is in it was left alone.

    place: its path, or its URL without a password.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"the history in {self.place!r} cannot be used: {self.reason}"


class NewerHistoryError(UnavailableError):
    """A newer version of Cenote has written this history. It was left as it is.

    found: the version of its schema, or that with what is in it that this version does not know.
    """

    def __init__(self, place: str, found: int | str, known: int) -> None:
        super().__init__(place, found, known)
        self.place = place
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"the history in {self.place!r} has schema {self.found}, this version of Cenote knows {self.known}; use "
            f"the newer version, or another place"
        )


class HistoryTakenError(UnavailableError):
    """Another runtime writes, or has begun to write, the same history. A history has one writer."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place

    def __str__(self) -> str:
        return f"the history in {self.place!r} is written by another runtime; close that one, or use another place"


# -- the jail ---------------------------------------------------------------------------------------------


class JailError(CenoteError):
    """The jail of a runtime died or broke the protocol during a request: code in it can have done that."""

    verdict = TASK


class JailLostError(JailError):
    """The jail ended during a request other than a cell (a cell reports it in its result)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the runtime's jail ended ({self.reason}); its namespace is gone, the next call starts a fresh one"


class RolledBackError(JailError):
    """The process died during a request other than a cell, and a snapshot goes on. step: of the snapshot."""

    def __init__(self, reason: str, step: int) -> None:
        super().__init__(reason, step)
        self.reason = reason
        self.step = step

    def __str__(self) -> str:
        where = f"after step {self.step}" if self.step else "before the first cell"
        return f"the runtime's process died ({self.reason}); its namespace is back as it was {where}"


class CallTimeoutError(JailError, TimeoutError):
    """A call other than a cell took longer than it may and was interrupted. The namespace is as it was.

    seconds: how long it may take.
    """

    verdict = limit("time")

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"the call took longer than {self.seconds:g} s and was interrupted; the namespace is as it was. What a "
            f"value runs while it is pickled, rebuilt or deleted may never end; if it only takes long, give the "
            f"runtime a SandboxPolicy with a larger call_timeout"
        )


class ProtocolViolation(JailError):
    """A jail sent a frame that the protocol does not allow at this point. That jail is ended."""


# -- programs that are tried by themselves --------------------------------------------------------------------


class RehearsalError(CenoteError):
    """A program that was tried in a fresh runtime did not come to its end. Nothing has changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class UnansweredCallError(RehearsalError):
    """It would have called a host function that no record answers. It was not called."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target

    def __str__(self) -> str:
        return f"it calls {self.target} outside in a way that the record does not answer"


# -- the platform -----------------------------------------------------------------------------------------


class UnknownRuntimeError(UsageError):
    """There is no such runtime, or it belongs to another tenant: the error does not say which."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"there is no runtime {self.name!r}; `cenote runtime ls` lists yours"


class UnknownReferenceError(UsageError):
    """There is no such object reference any more, or it belongs to another tenant: the error does not say which."""

    def __init__(self, reference: str) -> None:
        super().__init__(reference)
        self.reference = reference

    def __str__(self) -> str:
        return (
            f"there is no object reference {self.reference!r}; it was released, its lease is over or its machine "
            f"has left: share again"
        )


class RuntimeLostError(JailError):
    """A runtime of a platform is gone, and its state with it, such as with its machine. It does not come back to this
    client; its last request may have run.
    """

    verdict = INFRASTRUCTURE

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"this runtime is lost ({self.reason}); make a new one (`cenote runtime rm` frees its name)"


class OutcomeUnknownError(CenoteError):
    """The connection broke after a request was sent, and its outcome could not be determined. It may have run.

    runtime: its id. key: what the platform knows the request by.
    """

    def __init__(self, runtime: str, key: str, reason: str) -> None:
        super().__init__(runtime, key, reason)
        self.runtime = runtime
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        runtime = f"runtime {self.runtime}" if self.runtime else "the runtime"
        return (
            f"what became of request {self.key} to {runtime} is unknown ({self.reason}); "
            f"ask with runtime.outcome({self.key!r}) before you repeat it"
        )
