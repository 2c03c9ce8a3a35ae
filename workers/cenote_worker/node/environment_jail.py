"""Builds a tenant's environment in a jail of its own, which reaches the operator's index and nothing else.

uv reads files that strangers have written. So it works inside, and what it has installed comes out as plain files, by
name and content: no links, no modes but one, nothing in place of what is there already.
"""

from __future__ import annotations

import os
import queue
import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from cenote_security.errors import MalformedValueError, UsageError
from cenote_security.extras import importing
from cenote_security.network import TLS_PORT, Allow, host_name
from cenote_security.policy import Mount, SandboxPolicy
from cenote_security.printable import shown_size
from cenote_worker.egress.addresses import PublicReach
from cenote_worker.environments.errors import EnvironmentBuildError
from cenote_worker.environments.packages import PackageLock, constraints, plain_lock
from cenote_worker.environments.store import site_of
from cenote_worker.environments.uv_unsafe import Progress, base_python
from cenote_worker.execution.programs import KeptOutput, ProgramEnd, ProgramOrder, ProgramSpec
from cenote_worker.execution.results import StreamName
from cenote_worker.supervisor.exit_reason import JailExit
from cenote_worker.supervisor.start import JailStarter
from cenote_worker.supervisor.supervisor import Supervisor

_FILES_OF: Final = {"pypi.org": ("files.pythonhosted.org",)}
"""Where the files of an index lie, where that is another name."""

_WHEELS: Final = "/cenote-wheels"
_WORKING_MEMORY: Final = 2**30
"""Bytes for uv and the compiler, besides the files, which are in memory, too."""

_LEAVE_SECONDS: Final = 60.0
"""By which the jail outlives its last program at most."""

_MOST_SAID: Final = 8 * 2**10
_MOST_LOCK: Final = 16 * 2**20
_MOST_NAME: Final = 4096
_PIECES: Final = 64
"""Pieces of output that may wait to be written to the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """What an operator allows builds for tenants.

    indexes: URLs, the first is asked first. hosts: further names, such as `files.example.com`, that files of the
    indexes lie at. wheels: folders with wheels, there on each machine. disk: bytes of an environment while it is
    built, files that were fetched included. seconds: for one build.
    """

    indexes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    disk: int = 4 * 2**30
    seconds: float = 900.0

    @property
    def allows(self) -> bool:
        """Whether tenants may have environments built at all."""
        return bool(self.indexes or self.wheels)

    def check(self) -> None:
        """Raises UsageError for an index that no jail could be let to."""
        if self.indexes:
            IndexWays(self.indexes, self.hosts)

    def printable(self, text: str) -> str:
        """What uv has said, without the operator's logins at the indexes."""
        for url in self.indexes:
            login = urlsplit(url).netloc.rpartition("@")[0]
            password = login.partition(":")[2]
            for secret in filter(None, (login, unquote(login), password, unquote(password))):
                text = text.replace(secret, "****")
        return text

    def reaches(self) -> IndexWays | None:
        return IndexWays(self.indexes, self.hosts) if self.indexes else None


class IndexWays:
    """The names that a jail knows the indexes by, and what they stand for.

    A jail's way out has full names only. An index at an address, or at a name such as `localhost`, gets a name that
    only its jail knows.
    """

    def __init__(self, indexes: Sequence[str], hosts: Sequence[str]) -> None:
        self.urls: list[str] = []
        destinations = list(hosts)
        for url in indexes:
            parts = urlsplit(url)
            host, own = parts.hostname or "", host_name(parts.hostname or "")
            port = parts.port or (TLS_PORT if parts.scheme == "https" else 80)
            if parts.scheme not in ("http", "https") or not host:
                raise UsageError(f"an index has a URL such as 'https://pypi.org/simple', not {url!r:.200}")
            if own is None:
                if parts.scheme == "https":
                    raise UsageError(
                        f"the index {url!r:.200} is named by an address or a short name; TLS needs its full name, "
                        f"such as 'https://pypi.example.com/simple'"
                    )
                own = _named(host)
            destinations += [f"{own}:{port}", *_FILES_OF.get(own, ())]
            login = parts.netloc.rpartition("@")[0]
            self.urls.append(
                urlunsplit(parts._replace(netloc=f"{login}@{own}:{port}" if login else f"{own}:{port}"))
            )
        self.network = Allow(destinations, volume=16 * 2**30, rate=100.0)


_SUFFIX: Final = ".index.cenote.internal"
_KNOWN_HERE: Final = re.compile(rf"\bx(?:[0-9a-f]{{2}})+{re.escape(_SUFFIX)}")


def _named(host: str) -> str:
    """A full name for an address or a short name, which only `IndexReach` knows."""
    return f"x{host.encode().hex()}{_SUFFIX}"


def meant(name: str) -> str:
    if not name.endswith(_SUFFIX):
        return name
    return bytes.fromhex(name.removesuffix(_SUFFIX)[1:]).decode()


class IndexReach(PublicReach):
    """Names that the operator has given may stand for any address, such as those of the company's own network."""

    async def resolve(self, host: str) -> Sequence[str]:
        host = meant(host)
        with suppress(ValueError):
            return [str(ip_address(host))]
        return await super().resolve(host)

    def permits(self, address: str) -> bool:  # noqa: ARG002
        return True


class BuildJail:
    """A jail that makes one environment. Calls block, and raise EnvironmentBuildError.

    progress: gets lines of uv. room: bytes that the installed packages may have.
    """

    def __init__(
        self, supervisor: Supervisor, settings: BuildSettings, progress: Progress, room: int
    ) -> None:
        self._supervisor = supervisor
        self._settings = settings
        self._progress = progress
        self._room = room
        self._ends = time.monotonic() + settings.seconds

    @classmethod
    @contextmanager
    def begun(
        cls, starter: JailStarter, settings: BuildSettings, progress: Progress, room: int
    ) -> Iterator[BuildJail]:
        """Raises UsageError, UnavailableError, IsolationUnavailableError."""
        ways = settings.reaches()
        policy = SandboxPolicy(
            memory=_WORKING_MEMORY + settings.disk,
            disk=settings.disk,
            network="none" if ways is None else ways.network,
            mounts=[
                Mount(source=folder, target=f"{_WHEELS}/{n}") for n, folder in enumerate(settings.wheels)
            ],
            preload=(),
            snapshots="none",
            tracking=False,
        )
        for folder in settings.wheels:
            if not Path(folder).is_dir():
                raise EnvironmentBuildError(
                    "building the environment",
                    f"this machine has no folder {folder!r} with wheels; its operator puts it there, or corrects "
                    f"--environment-wheels",
                )
        supervisor = starter.start(policy, ends_at=time.monotonic() + settings.seconds + _LEAVE_SECONDS)
        try:
            yield cls(supervisor, settings, progress, room)
        finally:
            supervisor.end(JailExit(reason="closed"))

    def resolved(self, requirements: Sequence[str]) -> PackageLock:
        """Exact versions with hashes."""
        self._progress(f"resolving {len(requirements)} requirements")
        self._put("bounds.txt", "".join(f"{name}{bound}\n" for name, bound in constraints().items()))
        taken = bytearray()
        options = (
            "--generate-hashes",
            "--no-header",
            "--no-annotate",
            "--only-binary",
            ":all:",
            "--no-sources",
        )
        self._uv(
            "resolving the requirements",
            (
                "pip",
                "compile",
                "-",
                *options,
                "--python",
                base_python(),
                "-c",
                "bounds.txt",
                "-q",
                *self._sources(),
            ),
            given=("\n".join(requirements) + "\n").encode(),
            take=taken.extend,
        )
        if len(taken) > _MOST_LOCK:
            raise EnvironmentBuildError("resolving the requirements", "they come to too many packages")
        return plain_lock("the resolved requirements", taken.decode("utf-8", "replace"))

    def install(self, lock: PackageLock, venv: Path, shown: str) -> None:
        """Adds the packages to a fresh virtual environment outside. shown: its place in the end, for tracebacks."""
        self._put(lock.file, lock.text)
        plain = ("--no-project", "-q", "--offline")
        self._uv(
            "making the environment", ("venv", "--relocatable", *plain, "--python", base_python(), "made")
        )
        hashes = ("--require-hashes",) if lock.file == "requirements.txt" else ()
        self._uv(
            "installing the packages",
            ("pip", "install", "--python", "made/bin/python", "--no-deps", "--only-binary", ":all:", *hashes,
             "--link-mode", "hardlink", *self._sources(), "-r", lock.file),
        )  # fmt: skip
        self._progress("compiling the packages")
        site = site_of("made")
        options = ("-q", "-q", "--invalidation-mode", "unchecked-hash", "-s", site, "-p", site_of(shown))
        with suppress(EnvironmentBuildError):  # some packages have files for other versions of Python
            self._run(
                "compiling the packages", (base_python(), "-I", "-S", "-m", "compileall", *options, site)
            )
        self._progress("storing the packages")
        unpacking = Unpacking(venv, min(self._settings.disk, self._room))
        self._run(
            "storing the packages", (base_python(), "-I", "-S", "-c", _SEND, "made"), take=unpacking.take
        )
        unpacking.end()

    def _sources(self) -> Iterator[str]:
        ways = self._settings.reaches()
        for number, url in enumerate(ways.urls if ways else ()):
            yield from ("--default-index" if number == 0 else "--index", url)
        for number, _ in enumerate(self._settings.wheels):
            yield from ("--find-links", f"{_WHEELS}/{number}")
        if ways is None:
            yield from ("--offline", "--no-index")

    def _put(self, name: str, text: str) -> None:
        code = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"
        self._run("writing the lock", (base_python(), "-I", "-S", "-c", code, name), given=text.encode())

    def _uv(
        self,
        doing: str,
        arguments: Sequence[str],
        given: bytes = b"",
        take: Callable[[bytes], object] | None = None,
    ) -> None:
        with importing("building environments", "environments"):
            from uv import find_uv_bin
        flags = ("--color", "never", "--no-progress", "--no-python-downloads", "--no-config")
        self._run(doing, (find_uv_bin(), *arguments, *flags), given, take)

    def _run(
        self,
        doing: str,
        argv: Sequence[str],
        given: bytes = b"",
        take: Callable[[bytes], object] | None = None,
    ) -> None:
        """take: gets its output, on this thread."""
        left = self._ends - time.monotonic()
        said = _Said(lambda line: self._progress(self._settings.printable(line)[:200]))
        watched = _WatchedProgram()
        spec = ProgramSpec(argv=tuple(argv), env={"UV_CACHE_DIR": "/tmp/uv-cache"})
        order = ProgramOrder(spec=spec, has_input=True, timeout=max(left, 0.1))
        handle = self._supervisor.programs.begin(order, watched)
        try:
            handle.write(given, lambda _error: handle.close_input())
            end = watched.consumed(handle.resume, take or said.add_quietly, said.add)
        except BaseException:
            handle.kill()
            raise
        if isinstance(end, Exception):
            raise EnvironmentBuildError(doing, str(end)) from end
        if end.killed_by == "timeout":
            raise EnvironmentBuildError(
                doing,
                f"it took longer than {self._settings.seconds:g} s; ask for fewer packages, or the operator for more "
                f"with --environment-seconds",
            )
        if end.killed_by:
            raise EnvironmentBuildError(
                doing, f"the jail that builds it was ended ({end.killed_by}); build it again"
            )
        if end.exit_code:
            raise EnvironmentBuildError(doing, explained(said.text(), self._settings))


class _WatchedProgram:
    """A ProgramListener whose events another thread consumes; a program whose output it cannot keep up with waits."""

    def __init__(self) -> None:
        self._events: queue.Queue[tuple[StreamName, bytes] | ProgramEnd | Exception] = queue.Queue()

    def started(self, pid: int) -> None:
        pass

    def output(self, stream: StreamName, data: bytes) -> bool:
        self._events.put((stream, data))
        return self._events.qsize() < _PIECES

    def ended(self, outcome: ProgramEnd | Exception) -> None:
        self._events.put(outcome)

    def consumed(
        self, resume: Callable[[], None], out: Callable[[bytes], object], err: Callable[[bytes], object]
    ) -> ProgramEnd | Exception:
        while True:
            event = self._events.get()
            if not isinstance(event, tuple):
                return event
            stream, data = event
            (out if stream == "stdout" else err)(data)
            if self._events.empty():
                resume()


class _Said:
    """Standard error as lines of progress, and its end for an error."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._kept = KeptOutput(_MOST_SAID)
        self._line = b""

    def add(self, data: bytes) -> None:
        self._kept.add(data)
        *lines, self._line = (self._line + data)[-_MOST_SAID:].split(b"\n")
        for line in lines:
            if text := line.decode("utf-8", "replace").strip():
                self._progress(text)

    def add_quietly(self, data: bytes) -> None:
        self._kept.add(data)

    def text(self) -> str:
        return self._kept.whole().decode("utf-8", "replace")


# -- what comes out of the jail --

_SEND: Final = """
import os, struct, sys
root, out = sys.argv[1], sys.stdout.buffer
for parent, folders, files in os.walk(root):
    folders.sort()
    for name in sorted(files):
        path = os.path.join(parent, name)
        if os.path.islink(path):
            continue
        with open(path, "rb") as file:
            size, place = os.fstat(file.fileno()).st_size, os.fsencode(os.path.relpath(path, root))
            out.write(struct.pack("!H?Q", len(place), bool(os.fstat(file.fileno()).st_mode & 0o100), size) + place)
            left = size
            while left:
                data = file.read(min(left, 1 << 16))
                if not data:
                    sys.exit(3)
                out.write(data)
                left -= len(data)
out.write(struct.pack("!H?Q", 0, False, 0))
out.flush()
"""
"""Runs in the jail. Each file: length of its name, whether it is a program, its size; the name; the content."""

_HEAD: Final = struct.Struct("!H?Q")
_FOLDERS: Final = ("bin", "etc", "include", "lib", "share")


class Unpacking:
    """Writes files below a folder, as their bytes come. It trusts none of them: a file outside, in place of one that
    is there, or beyond `most` bytes is refused.
    """

    def __init__(self, venv: Path, most: int) -> None:
        self._venv = venv
        self._site = Path(site_of(str(venv))).relative_to(venv).parts
        self._most = most
        self._data = bytearray()
        self._left = 0
        self._file: BinaryIO | None = None
        self._over = False

    def take(self, data: bytes) -> None:
        """Raises MalformedValueError, OSError, EnvironmentBuildError."""
        view = memoryview(data)
        while view:
            if self._left:
                piece = view[: self._left]
                if self._file is not None:
                    self._file.write(piece)
                self._left -= len(piece)
                view = view[len(piece) :]
                if not self._left:
                    self._close()
                continue
            self._data += view
            view = memoryview(self._begun())

    def _begun(self) -> bytes:
        """Begins the next file once its head is there. Returns what comes after the head."""
        if self._over:
            raise MalformedValueError("the jail sent more than it announced")
        if len(self._data) < _HEAD.size:
            return b""
        length, program, size = _HEAD.unpack_from(self._data)
        if length > _MOST_NAME or len(self._data) < _HEAD.size + length:
            if length > _MOST_NAME:
                raise MalformedValueError("a name that the jail sent is too long")
            return b""
        name = bytes(self._data[_HEAD.size : _HEAD.size + length])
        rest = bytes(self._data[_HEAD.size + length :])
        self._data.clear()
        if not length:
            self._over = True
            if rest:
                raise MalformedValueError("the jail sent more than it announced")
            return b""
        self._most -= size
        if self._most < 0:
            raise EnvironmentBuildError(
                "storing the packages",
                "they are larger than what is left to the tenant of its quota `environments`; remove environments "
                "that are not needed with `cenote env rm`",
            )
        self._left = size
        self._file = self._opened(name, program)
        if not size:
            self._close()
        return rest

    def _opened(self, name: bytes, program: bool) -> BinaryIO | None:
        """A new file; None for one that a fresh virtual environment has itself, which stays as it is."""
        try:
            parts = name.decode().split("/")
        except UnicodeDecodeError:
            raise MalformedValueError("a file of a package has a name that is no text") from None
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise MalformedValueError(f"the jail sent a file with a bad name: {name!r:.100}")
        strange = len(parts) == 1 or parts[0] not in _FOLDERS
        if strange or (parts[0] == "lib" and tuple(parts[: len(self._site)]) != self._site):
            return None
        path = self._venv.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.fdopen(os.open(path, flags, 0o755 if program else 0o644), "wb")
        except FileExistsError:
            return None

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def end(self) -> None:
        """Raises MalformedValueError where something is missing."""
        self._close()
        if not self._over:
            raise MalformedValueError("the jail sent only a part of the packages")


# -- errors --

_SIGNS: Final = (
    ("disk", ("No space left on device", "os error 28", "Disk quota exceeded")),
    (
        "network",
        (
            *("error sending request", "Failed to fetch", "client error", "dns error", "tunnel error"),
            *("Connection refused", "Network connectivity is disabled"),
        ),
    ),
    (
        "sources",
        (
            *("no wheels", "no usable wheels", "building from source is disabled", "binary distribution"),
            *("only-binary", "Building source distributions", "no matching Python", "Failed to build"),
        ),
    ),
    (
        "lacking",
        (
            "was not found in",
            "not found in the provided",
            "there are no versions of",
            "there is no version of",
        ),
    ),
    ("conflict", ("unsatisfiable", "conflict", "incompatible")),
)
"""The first that fits: signs of what went wrong in uv's words."""

_STEPS: Final = {
    "sources": "only wheels are installed, nothing is built from sources: choose a version that has a wheel, or "
    "ask the operator to add one",
    "network": "the index cannot be reached: build it again later, or have the operator check --environment-index",
    "lacking": "the index has no such package: check name and version, or ask the operator to add its wheel",
    "conflict": "the requirements contradict each other: loosen one of them",
    "": "correct what it complains of, and build it again",
}
_UNTOLD: Final = str.maketrans(dict.fromkeys("\u00d7\u2570\u2500\u25b6\u2502\u251c", " "))
"""What uv draws around its words."""

_LONGEST: Final = 600


def explained(said: str, settings: BuildSettings) -> str:
    """What uv has said, in one line that begins with the next step."""
    named = _KNOWN_HERE.sub(lambda name: meant(name[0]), settings.printable(said))
    words = " ".join(named.translate(_UNTOLD).split())
    if not words:
        return "uv ended without a word; build it again"
    kind = next((kind for kind, signs in _SIGNS if any(sign in words for sign in signs)), "")
    step = _STEPS.get(
        kind,
        f"it takes more than {shown_size(settings.disk)} while it is built: ask for fewer packages, or the operator "
        f"for a larger --environment-disk",
    )
    half = _LONGEST // 2
    return f"{step} ({words if len(words) <= _LONGEST else f'{words[:half]} ... {words[-half:]}'})"
