"""Attempts on the network and on listeners: no packet leaves, no listener is reached, no family is opened."""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from cenote_security.attacks.escape_attempt import Family
from cenote_security.attacks.inside_unsafe import World, call, first_success

NETWORK = Family("network")
SHARED_MEMORY = Family("shared memory")
_NO_WAY = ("ENETUNREACH", "ECONNREFUSED", "EAFNOSUPPORT", "EPERM", "EADDRNOTAVAIL", "EACCES")
_NO_FAMILY = ("EAFNOSUPPORT", "EPERM", "EPROTONOSUPPORT")


@NETWORK.attempt("loopback by its other names: 0.0.0.0, ::1, ::ffff:127.0.0.1, 127.1.2.3", *_NO_WAY)
def connect_by_another_name(world: World) -> object:
    names = ("0.0.0.0", "127.1.2.3")
    ways = [lambda name=name: socket.create_connection((name, world.tcp), timeout=3) for name in names]
    for name in ("::1", "::ffff:127.0.0.1"):
        ways.append(lambda name=name: socket.socket(socket.AF_INET6).connect((name, world.tcp)))
    return first_success(*ways)


@NETWORK.attempt("a datagram to a local service", "done", *_NO_WAY)
def send_a_datagram(world: World) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", world.udp))


@NETWORK.attempt("TCP fast open, past a check of connect", "EOPNOTSUPP", *_NO_WAY)
def send_with_fast_open(world: World) -> object:
    return socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", world.tcp))


@NETWORK.attempt("MPTCP, past Landlock's TCP rules", "EPROTONOSUPPORT", *_NO_WAY)
def connect_by_mptcp(world: World) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(("127.0.0.1", world.tcp))


@NETWORK.attempt("the metadata address of a cloud", *_NO_WAY)
def ask_for_metadata(world: World) -> object:
    addresses = (("169.254.169.254", 80), ("169.254.170.2", 80), ("100.100.100.200", 80))
    return first_success(*(lambda a=a: socket.create_connection(a, timeout=3) for a in addresses))


@NETWORK.attempt("names resolved outside", "gaierror", "EAI_AGAIN", *_NO_WAY)
def resolve_a_name(world: World) -> object:
    try:
        return socket.getaddrinfo("example.org", 443)
    except socket.gaierror as error:
        raise PermissionError(1, str(error)) from error


@NETWORK.attempt(
    "an abstract socket, from an end of a pair", "EISCONN", "EOPNOTSUPP", "EINVAL", "EPROTOTYPE", *_NO_WAY
)
def send_from_a_pair(world: World) -> object:
    kinds = (socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    names = ("\0" + world.abstract, world.socket)
    ways = [
        lambda kind=kind, name=name: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", name)
        for kind in kinds[:2]
        for name in names
    ]
    return first_success(*ways)


@NETWORK.attempt("netlink: routes, audit, netfilter (CVE-2024-1086)", *_NO_FAMILY)
def open_netlink(world: World) -> object:
    return first_success(*(lambda n=n: socket.socket(16, socket.SOCK_RAW, n) for n in (0, 9, 12, 15, 16)))


@NETWORK.attempt("packet sockets, CVE-2016-8655 and CVE-2017-7308", *_NO_FAMILY)
def open_a_packet_socket(world: World) -> object:
    return first_success(
        lambda: socket.socket(17, socket.SOCK_RAW, 0x0300), lambda: socket.socket(17, socket.SOCK_DGRAM)
    )


@NETWORK.attempt("raw internet sockets", *_NO_FAMILY)
def open_a_raw_socket(world: World) -> object:
    return first_success(
        *(lambda p=p: socket.socket(socket.AF_INET, socket.SOCK_RAW, p) for p in (0, 1, 6, 255))
    )


@NETWORK.attempt("vsock, CVE-2021-26708", *_NO_FAMILY)
def open_a_vsock(world: World) -> object:
    return socket.socket(40, socket.SOCK_STREAM)


@NETWORK.attempt("the kernel's crypto, AF_ALG: CVE-2019-8912", *_NO_FAMILY)
def open_kernel_crypto(world: World) -> object:
    return socket.socket(38, socket.SOCK_SEQPACKET)


@NETWORK.attempt(
    "AF_KEY, AF_XDP, AF_RDS (CVE-2010-3904), AF_CAN (CVE-2010-2959), AF_BLUETOOTH, AF_X25, AF_QIPCRTR",
    *_NO_FAMILY,
)
def open_rare_families(world: World) -> object:
    families = (15, 44, 21, 29, 31, 9, 42, 8, 4, 3, 5, 24, 39, 43)
    return first_success(*(lambda f=f, t=t: socket.socket(f, t) for f in families for t in (1, 2, 3, 5)))


@NETWORK.attempt("protocols behind AF_INET: DCCP (CVE-2017-6074), SCTP, UDP-Lite, SMC", *_NO_FAMILY)
def open_rare_protocols(world: World) -> object:
    kinds = ((6, 33), (6, 0), (1, 132), (5, 132), (2, 136), (1, 256))
    return first_success(*(lambda k=k: socket.socket(socket.AF_INET, *k) for k in kinds))


@NETWORK.attempt("netfilter by setsockopt, CVE-2021-22555", "EPERM", "ENOPROTOOPT", "EAFNOSUPPORT", "ENOENT")
def replace_netfilter_tables(world: World) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM).setsockopt(0, 64, bytes(128))


@NETWORK.attempt("interfaces: setting one up, promiscuous mode", "EPERM", "ENODEV", "EAFNOSUPPORT", "ENOTTY")
def set_up_an_interface(world: World) -> object:
    import fcntl

    up = struct.pack("16sH", b"eth0", 0x1 | 0x100) + bytes(22)
    return fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, up)


@NETWORK.attempt("a port to listen on for everybody", "done", "EACCES", "EPERM", "EAFNOSUPPORT")
def listen_for_others(world: World) -> object:
    server = socket.create_server(("0.0.0.0", 47147))
    return server.getsockname()


@NETWORK.attempt("the client's ends of the jail's own pipes and sockets", "done", "EACCES", "EPERM", "ENXIO")
def speak_as_somebody_else(world: World) -> object:
    os.write(2, b"::attempt of a lie on stderr\n")
    return "only its own voice"


@SHARED_MEMORY.attempt("POSIX shared memory of the host", "ENOENT", "EACCES")
def open_shared_memory_of_others(world: World) -> object:
    from multiprocessing import shared_memory

    return shared_memory.SharedMemory(name=f"{os.path.basename(world.folder)}-host")


@SHARED_MEMORY.attempt("shared memory left for others", "done", "EACCES", "ENOENT")
def leave_shared_memory(world: World) -> object:
    return os.open(f"/dev/shm/{os.path.basename(world.folder)}", os.O_CREAT | os.O_RDWR, 0o666)


@SHARED_MEMORY.attempt("a huge page pool, hugetlb", "EPERM", "ENOMEM", "EINVAL", "ENOENT", "EACCES")
def take_huge_pages(world: World) -> object:
    mapping = ctypes.CDLL(None, use_errno=True).mmap
    mapping.restype = ctypes.c_long
    if (address := mapping(None, 2 << 20, 3, 0x40022, -1, 0)) == -1:
        raise OSError(ctypes.get_errno(), "no huge page")
    ctypes.memset(address, 1, 2 << 20)
    return address


@SHARED_MEMORY.attempt("pinning memory, mlock", "ENOMEM", "EPERM")
def pin_memory(world: World) -> object:
    nr = 151 if os.uname().machine == "x86_64" else 230
    return call(nr, 3)
