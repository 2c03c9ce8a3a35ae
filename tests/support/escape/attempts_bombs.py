"""Attempts to use up shared resources. Each has a limit of its own too: a missing wall must not harm the machine."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import sys
import threading
import time

from cenote_security.attacks.escape_attempt import Family
from cenote_security.attacks.inside_unsafe import World

BOMBS = Family("bombs")
HANGS = Family("hangs")


@BOMBS.attempt("fork bomb", "EAGAIN")
def fork_without_end(world: World) -> object:
    children = []
    while len(children) < 200:
        children.append(os.fork())
        if children[-1] == 0:
            time.sleep(3)
            os._exit(0)
    return children


@BOMBS.attempt("thread bomb", "RuntimeError")
def start_threads_without_end(world: World) -> object:
    stop = threading.Event()
    for _ in range(200):
        threading.Thread(target=stop.wait, args=(3,), daemon=True).start()
    return None


@BOMBS.attempt("memory in one piece", "MemoryError", "memory")
def allocate_one_piece(world: World) -> object:
    return len(bytearray(300 << 20))


@BOMBS.attempt("memory in small pieces", "MemoryError", "memory")
def allocate_many_pieces(world: World) -> object:
    pieces = []
    for _ in range(300):
        pieces.append(os.urandom(1) * (1 << 20))
    return len(pieces)


@BOMBS.attempt("a file that grows without end", "EFBIG", "ENOSPC", "memory", "disk")
def fill_one_file(world: World) -> object:
    with open("large", "wb") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    return "filled"


@BOMBS.attempt("a memory file that grows without end", "EFBIG", "memory", "ENOSPC")
def fill_a_memory_file(world: World) -> object:
    memory = os.memfd_create("large")
    for _ in range(300):
        os.write(memory, bytes(1 << 20))
    return "filled"


@BOMBS.attempt("a file that only claims to be large", "EFBIG")
def make_a_sparse_file(world: World) -> object:
    return os.truncate(os.open("sparse", os.O_CREAT | os.O_RDWR), 1 << 50)


@BOMBS.attempt("descriptors without end", "EMFILE")
def open_files_without_end(world: World) -> object:
    return [os.open("/dev/null", os.O_RDONLY) for _ in range(20_000)]


@BOMBS.attempt("socket pairs without end", "EMFILE")
def make_sockets_without_end(world: World) -> object:
    return [socket.socketpair() for _ in range(20_000)]


@BOMBS.attempt("pipes of the largest size without end", "EMFILE", "ENFILE", "EPERM")
def make_pipes_without_end(world: World) -> object:
    import fcntl

    pipes = []
    for _ in range(20_000):
        pipes.append(os.pipe())
        if len(pipes) < 100:
            fcntl.fcntl(pipes[-1][1], 1031, 1 << 20)
    return len(pipes)


@BOMBS.attempt("output without end", "done")
def write_without_end(world: World) -> object:
    for _ in range(3000):
        sys.stdout.write("x" * 10_000)
    return None


@BOMBS.attempt("a value whose repr has no end", "MemoryError", "memory", "done")
def show_something_without_end(world: World) -> object:
    class Bomb:
        def __repr__(self) -> str:
            return "x" * (300 << 20)

    return repr(Bomb())[:10]


@BOMBS.attempt("a bomb of decompression", "MemoryError", "memory")
def inflate_a_bomb(world: World) -> object:
    import zlib

    engine = zlib.compressobj(1)
    packed = b"".join(engine.compress(bytes(1 << 20)) for _ in range(300)) + engine.flush()
    return len(zlib.decompress(packed))


@BOMBS.attempt("real-time signals queued without end", "EAGAIN")
def queue_signals_without_end(world: World) -> object:
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(100_000):
        if libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None):
            raise OSError(ctypes.get_errno(), "no more")
    return "queued"


@BOMBS.attempt("priority raised", "EPERM", "EACCES")
def raise_priority(world: World) -> object:
    return os.setpriority(os.PRIO_PROCESS, 0, -20)


@BOMBS.attempt("limits removed", "ValueError", "EPERM")
def remove_limits(world: World) -> object:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(kind, unlimited)
    return "removed"


@HANGS.attempt("a loop that ignores the interrupt", "time")
def loop_and_ignore(world: World) -> object:
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            continue


@HANGS.attempt("a regular expression that holds the interpreter lock", "time", "KeyboardInterrupt")
def match_forever(world: World) -> object:
    import re

    return re.match(r"(a+)+$", "a" * 60 + "b")


@HANGS.attempt("signals blocked in a C call", "time")
def sleep_with_signals_blocked(world: World) -> object:
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while True:
        ctypes.CDLL(None).sleep(1000)


@HANGS.attempt("a number that takes forever", "time", "KeyboardInterrupt")
def compute_forever(world: World) -> object:
    return 7 ** (10**9)


@HANGS.attempt("the worker stopped, SIGSTOP", "time")
def stop_oneself(world: World) -> object:
    import signal

    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)
    return "went on"


@HANGS.attempt("children that do not end, and are waited for", "time")
def wait_for_a_child(world: World) -> object:
    if (child := os.fork()) == 0:
        while True:
            time.sleep(1)
    while True:
        try:
            os.waitpid(child, 0)
        except KeyboardInterrupt:
            continue
