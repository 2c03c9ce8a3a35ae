"""Attempts of a cell on its own worker: the damage must stay in its own runtime.

Where no outcome is named, any will do: a tampered worker may report anything.
"""

# ruff: noqa: SIM115  (an attempt ends at once, and its crude ways are the point)

from __future__ import annotations

import array
import ctypes
import os
import signal
import socket
import struct
import sys
import threading
import time

from cenote_security.attacks.escape_attempt import Family
from cenote_security.attacks.inside_unsafe import World

TAMPERING = Family("worker tampering")
FRAMES = Family("forged frames")


@TAMPERING.attempt("a trace function that lies, sys.settrace")
def trace_the_worker(world: World) -> object:
    def tracer(frame: object, event: str, argument: object) -> object:
        frame.f_locals.clear()
        raise SystemExit("traced")

    threading.settrace(tracer)
    return sys.settrace(tracer)


@TAMPERING.attempt("a profile function that raises, sys.setprofile")
def profile_the_worker(world: World) -> object:
    def profiler(*_: object) -> None:
        raise KeyboardInterrupt

    return sys.setprofile(profiler)


@TAMPERING.attempt("frames of the caller, f_back: CVE-2023-37271's road")
def change_the_caller_s_locals(world: World) -> object:
    frame = sys._getframe().f_back
    found = []
    while frame is not None:
        found.append(frame.f_code.co_name)
        for name in list(frame.f_locals):
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), 1)
            frame.f_locals[name] = None
        frame = frame.f_back
    return found


@TAMPERING.attempt("objects of the worker, found by the collector")
def wreck_what_the_collector_knows(world: World) -> object:
    import gc

    wrecked = 0
    for one in gc.get_objects():
        if type(one).__module__.startswith("cenote_worker"):
            for name in list(getattr(one, "__dict__", {})):
                one.__dict__[name] = None
                wrecked += 1
    gc.set_threshold(1, 1, 1)
    return wrecked


@TAMPERING.attempt("builtins replaced: exec, compile, print, len, open")
def replace_builtins(world: World) -> object:
    import builtins

    for name in ("exec", "compile", "len", "isinstance", "open", "__import__", "repr", "getattr"):
        setattr(builtins, name, lambda *a, **k: None)
    return None


@TAMPERING.attempt("modules replaced: json, socket, struct, protobuf")
def poison_modules(world: World) -> object:
    for name in list(sys.modules):
        if name.split(".")[0] in (
            "json",
            "socket",
            "struct",
            "google",
            "cenote_proto",
            "cenote_worker",
            "os",
        ):
            sys.modules[name] = None
    return None


@TAMPERING.attempt("methods of modules patched in place")
def patch_the_channel(world: World) -> object:
    import cenote_worker.jail.output.frame_sink as sink
    import cenote_worker.jail.worker as worker
    from cenote_proto.v1 import jail_pb2

    jail_pb2.WorkerFrame.SerializeToString = lambda *a, **k: b"\xff" * 99
    sink.FrameSink.send = lambda *a, **k: None
    worker.Worker._answer = lambda *a, **k: None
    return None


@TAMPERING.attempt("an import hook that supplies evil modules")
def hook_imports(world: World) -> object:
    class Finder:
        def find_spec(self, *_: object) -> None:
            open(world.secret).read()

    sys.meta_path.insert(0, Finder())
    sys.path_hooks.clear()
    sys.path[:] = ["/tmp"]
    return None


@TAMPERING.attempt("code left for the interpreter's end, atexit")
def leave_code_for_the_end(world: World) -> object:
    import atexit

    atexit.register(lambda: time.sleep(1000))
    return sys.exit(3)


@TAMPERING.attempt("signal handlers replaced")
def ignore_all_signals(world: World) -> object:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    return signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))


@TAMPERING.attempt("a thread that lives on and writes")
def leave_a_thread(world: World) -> object:
    def write() -> None:
        for _ in range(2000):
            os.write(1, b"x" * 1000)

    return threading.Thread(target=write, daemon=True).start()


@TAMPERING.attempt("a finaliser that loops")
def leave_a_finaliser(world: World) -> object:
    class Late:
        def __del__(self) -> None:
            os.write(1, b"late")
            raise SystemExit

    import builtins

    builtins.late = Late()
    return None


@TAMPERING.attempt("output streams replaced")
def replace_the_streams(world: World) -> object:
    class Stream:
        def __getattr__(self, name: str) -> object:
            raise SystemExit(name)

    sys.stdout = sys.stderr = sys.__stdout__ = Stream()
    sys.excepthook = sys.displayhook = None
    return None


@TAMPERING.attempt("descriptors closed")
def close_everything(world: World) -> object:
    return os.closerange(0, 100)


@TAMPERING.attempt("standard descriptors exchanged")
def exchange_descriptors(world: World) -> object:
    null = os.open("/dev/null", os.O_RDWR)
    return [os.dup2(null, number) for number in (0, 1, 2)]


@TAMPERING.attempt("a child that goes on as the worker")
def impersonate_by_fork(world: World) -> object:
    if os.fork() == 0:
        return "two of us answer now"
    return "two of us answer now"


@TAMPERING.attempt("another program in the worker's place, exec")
def become_another_program(world: World) -> object:
    return os.execv("/bin/sh", ["sh", "-c", "echo forged >&3; exec sleep 0"])


@TAMPERING.attempt("a segmentation fault", "signal 11")
def fault(world: World) -> object:
    return ctypes.string_at(0)


@TAMPERING.attempt("abort", "signal 6")
def abort(world: World) -> object:
    return os.abort()


@TAMPERING.attempt("os._exit", "exit")
def exit_at_once(world: World) -> object:
    os._exit(0)


@TAMPERING.attempt(
    "the stack exhausted by recursion without limit", "RecursionError", "signal 11", "MemoryError"
)
def recurse_without_limit(world: World) -> object:
    sys.setrecursionlimit(10**9)

    class Deep:
        def __getattr__(self, name: str) -> object:
            return getattr(self, name + "x"[:0])

    return Deep().attribute


@TAMPERING.attempt(
    "the parser's stack exhausted", "MemoryError", "SyntaxError", "RecursionError", "signal 11"
)
def nest_without_limit(world: World) -> object:
    return compile("(" * 100_000 + ")" * 100_000, "deep", "eval")


@TAMPERING.attempt("the interpreter's memory overwritten")
def overwrite_the_interpreter(world: World) -> object:
    ctypes.memset(id(int), 0xFF, 64)
    return 1 + 1


@TAMPERING.attempt("the collector made to run forever on what lies about itself")
def lie_to_the_collector(world: World) -> object:
    class Liar:
        __class__ = property(lambda self: exec("raise SystemExit"))

        def __eq__(self, other: object) -> bool:
            raise SystemExit

        def __hash__(self) -> int:
            raise SystemExit

    globals()["liar"] = Liar()
    return None


@TAMPERING.attempt("environment, folder and mask of the process")
def change_the_process_state(world: World) -> object:
    os.environ.clear()
    os.makedirs("gone", exist_ok=True)
    os.chdir("gone")
    os.rmdir("../gone")
    return os.umask(0o777)


@FRAMES.attempt("noise", "protocol")
def send_noise(world: World) -> object:
    socket.socket(fileno=os.dup(3)).send(bytes(range(256)))
    return time.sleep(20)


@FRAMES.attempt("an empty packet, which reads as the end of a stream", "protocol")
def send_nothing(world: World) -> object:
    socket.socket(fileno=os.dup(3)).sendmsg([b""])
    return time.sleep(20)


@FRAMES.attempt("a socket that is shut while its worker lives on", "protocol", "exit")
def hang_up(world: World) -> object:
    socket.socket(fileno=os.dup(3)).shutdown(socket.SHUT_WR)
    while True:
        try:
            time.sleep(20)
        except KeyboardInterrupt:
            continue


@FRAMES.attempt("an empty packet on each other line: to the warden, for host calls")
def send_nothing_anywhere(world: World) -> object:
    sent = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(number)) as line:
                if number != 3 and line.type == socket.SOCK_SEQPACKET:
                    sent += not line.sendmsg([b""], [], socket.MSG_DONTWAIT)
        except OSError:
            continue
    return sent


@FRAMES.attempt("a reply that nobody asked for", "protocol")
def send_a_reply_too_many(world: World) -> object:
    from cenote_proto.v1 import jail_pb2

    frame = jail_pb2.WorkerFrame()
    frame.reply.id = 2**62
    frame.reply.done.SetInParent()
    socket.socket(fileno=os.dup(3)).send(frame.SerializeToString())
    return time.sleep(20)


@FRAMES.attempt("descriptors that nothing names, SCM_RIGHTS", "protocol")
def send_descriptors(world: World) -> object:
    rights = array.array("i", [0, 1, 2])
    socket.socket(fileno=os.dup(3)).sendmsg([b"\x0a\x00"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    return time.sleep(20)


@FRAMES.attempt("memory that can still be changed, a time-of-check race", "protocol")
def send_unsealed_memory(world: World) -> object:
    from cenote_proto.v1 import jail_pb2

    memory = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 4096)
    frame = jail_pb2.WorkerFrame()
    frame.display.types.append("text/plain")
    frame.display.content.size = 4096
    frame.display.content.attached = True
    frame.display.content.count = 1
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))]
    socket.socket(fileno=os.dup(3)).sendmsg([frame.SerializeToString()], rights)
    return time.sleep(20)


@FRAMES.attempt("a descriptor that is no memory: a device, a pipe, a folder", "protocol")
def send_something_else_as_memory(world: World) -> object:
    from cenote_proto.v1 import jail_pb2

    frame = jail_pb2.WorkerFrame()
    frame.display.types.append("text/plain")
    frame.display.content.size = 4096
    frame.display.content.attached = True
    frame.display.content.count = 1
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [os.open("/dev/zero", os.O_RDWR)]))]
    socket.socket(fileno=os.dup(3)).sendmsg([frame.SerializeToString()], rights)
    return time.sleep(20)


@FRAMES.attempt("sizes beyond any memory", "protocol")
def claim_a_huge_size(world: World) -> object:
    from cenote_proto.v1 import jail_pb2

    frame = jail_pb2.WorkerFrame()
    frame.display.content.size = 2**63
    frame.display.content.count = 2**31
    socket.socket(fileno=os.dup(3)).send(frame.SerializeToString())
    return time.sleep(20)


@FRAMES.attempt("nesting without end, CVE-2024-7254's kind", "protocol")
def nest_a_message(world: World) -> object:
    socket.socket(fileno=os.dup(3)).send(b"\x22" * 100_000)
    return time.sleep(20)


@FRAMES.attempt("eight million variables in sixteen megabytes", "protocol")
def describe_too_much(world: World) -> object:
    import fcntl

    from cenote_proto.v1 import jail_pb2

    variables = b"\x0a\x00" * (8 * 2**20 - 64)
    nested = b"\x2a\x80\xff\xff\x07" + variables
    reply = b"\x22\x85\xff\xff\x07" + nested
    memory = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.write(memory, struct.pack("<Q", len(reply)).ljust(64, b"\0") + reply)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, 15)
    frame = jail_pb2.WorkerFrame()
    frame.oversized.size, frame.oversized.count, frame.oversized.attached = 64 + len(reply), 1, True
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))]
    socket.socket(fileno=os.dup(3)).sendmsg([frame.SerializeToString()], rights)
    return time.sleep(20)


@FRAMES.attempt("a flood of frames", "done")
def flood_with_frames(world: World) -> object:
    from cenote_proto.v1 import jail_pb2

    frame = jail_pb2.WorkerFrame()
    frame.output.text = "x" * 1000
    data, channel = frame.SerializeToString(), socket.socket(fileno=os.dup(3))
    for _ in range(5000):
        channel.send(data)
    return None
