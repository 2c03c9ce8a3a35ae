"""A client with secrets in every place of a process. The tests start it, with a parent that has one too.

victim.py LEVEL --password=CANARY    with the token on standard input; prints what the hunt in its jail found
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.policy import SandboxPolicy

HUNT = Path(__file__).with_name("hunt.py")
TOKEN = sys.stdin.read().strip()
PASSWORD = f"canary-{TOKEN}-unreferenced_global"
ADD_KEY, KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
USER_KEYRING, UNLINK_KEY = -4, 9
SYSCALL = ctypes.CDLL(None).syscall
HELD: list[Any] = []
"""Secrets in this process's memory, and objects that must stay open."""


def canary(place: str) -> str:
    return f"canary-{TOKEN}-{place}"


def plant() -> dict[str, Any]:
    """Plants a canary in each place; returns what an attacker might know about the places."""
    folders = [Path.home(), Path.cwd(), Path(tempfile.gettempdir())]
    for folder, place in zip(folders, ("home_file", "working_file", "temporary_file"), strict=True):
        (folder / "secret.txt").write_text(canary(place))
    (folders[0] / canary("file_name")).touch()
    shared = Path("/dev/shm") / f"cenote-test-{os.getpid()}"
    shared.write_text(canary("shared_memory"))
    HELD.append(canary("heap"))
    paths = [*map(str, folders), *(str(folder / "secret.txt") for folder in folders), str(shared)]
    plant_descriptors()
    return {"paths": paths, "pids": [os.getpid(), os.getppid()], "key": f"cenote-test-{os.getpid()}"}


def plant_descriptors() -> None:
    """A memory file, a file and a full pipe that a careless start would pass on, and a socket with a telling name."""
    memory = os.memfd_create("notes")
    os.write(memory, canary("memory_file").encode())
    os.lseek(memory, 0, os.SEEK_SET)
    reading, writing = os.pipe()
    os.write(writing, canary("pipe").encode())
    unlinked, path = tempfile.mkstemp()
    os.write(unlinked, canary("deleted_file").encode())
    os.unlink(path)
    for descriptor in (memory, reading, writing, unlinked):
        os.set_inheritable(descriptor, True)
    HELD.append(socket.socket(socket.AF_UNIX))
    HELD[-1].bind(f"\0{canary('abstract_socket')}")
    HELD[-1].listen()


def plant_key(description: str) -> int:
    """A key in the user's keyring; negative if the machine does not permit one."""
    payload = canary("key").encode()
    return int(SYSCALL(ADD_KEY, b"user", description.encode(), payload, len(payload), USER_KEYRING))


def by_value(number: int) -> int:
    return number + 1


def failing() -> None:
    """A host function whose failure contains secrets: its context, locals, attributes.

    Its text, its notes and its explicit cause are for the jail.
    """
    local = canary("host_locals")
    try:
        raise KeyError(canary("host_context"))
    except KeyError:
        error = ValueError("refused")
        error.secret = canary("host_attribute"), local  # type: ignore[attr-defined]
        raise error  # noqa: B904  (this is what is looked at)


CONTROLS = """
import os, socket, subprocess, sys, tempfile
def inside(place):
    return 'canary-' + TOKEN + '-inside_' + place
os.environ['INSIDE'] = inside('environment')
command = [sys.executable, '-c', 'import sys; sys.stdin.read()', inside('argument')]
child = subprocess.Popen(command, stdin=subprocess.PIPE, env={'A': inside('child_environment')})
heap = bytearray(inside('heap').encode())
open('secret.txt', 'w').write(inside('working_file'))
open(inside('file_name'), 'w').close()
open(os.path.join(tempfile.gettempdir(), 'secret.txt'), 'w').write(inside('temporary_file'))
memory = os.memfd_create('notes'); os.write(memory, inside('memory_file').encode())
reading, writing = os.pipe(); os.write(writing, inside('pipe').encode())
"""

SEARCH = """
import json
hunt = Hunt()
hunt.environment()
hunt.modules()
hunt.files(KNOWN['paths'])
hunt.system()
hunt.keyring(KNOWN['key'])
try:
    failing()
except Exception as error:
    hunt.error(error)
hunt.look_at_text([by_value.__globals__.keys(), by_value.__code__.co_filename], 'by_value')
hunt.processes(KNOWN['pids'])
child.kill()
print(json.dumps(hunt.found))
"""


def main(level: str) -> dict[str, Any]:
    known = plant()
    key = plant_key(known["key"])
    hunt = (
        HUNT.read_text()
        .replace("TOKEN", TOKEN)
        .replace("LEVEL", level)
        .replace("from __future__ import annotations\n", "")
    )
    try:
        policy = SandboxPolicy(isolation=level, preload=(), memory="1GiB")  # type: ignore[arg-type]
        functions = [Function(by_value), Function(failing, host=True)]
        variables = [Variable("KNOWN", known), Variable("TOKEN", TOKEN)]
        with PythonRuntime(functions=functions, variables=variables, sandbox=policy) as runtime:
            for cell in (hunt, CONTROLS, SEARCH):
                result = runtime.execute(cell, timeout=60)
                if not result.success:
                    raise SystemExit(str(result.error))
            return {
                "found": json.loads(result.stdout),
                "stderr": result.stderr,
                "key": key > 0,
            }
    finally:
        os.unlink(known["paths"][-1])
        SYSCALL(KEYCTL, UNLINK_KEY, key, USER_KEYRING)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
