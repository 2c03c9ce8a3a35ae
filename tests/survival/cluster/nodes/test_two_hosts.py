"""The gateway on one host and the cluster on another: the connections between them, and that the guide lists them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest
from tests.support.cluster.foreign import RayMachine
from tests.support.cluster.standing import StandingPlatform
from tests.support.processes import kill
from tests.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        os.geteuid() != 0 or which("ip") is None,
        reason="hosts are network namespaces here, which takes root and the command ip",
    ),
]

GUIDE = Path(__file__).resolve().parents[4] / "deploy" / "README.md"

CLIENT_PORT = 10001


@dataclass(frozen=True, kw_only=True)
class Host:
    """A network namespace with one address and a route only to the other one."""

    name: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def end(self) -> None:
        held = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True)
        kill(*map(int, held.stdout.split()))
        subprocess.run(["ip", "netns", "del", self.name], check=True)

    def ports_used_by(self, other: Host) -> set[int]:
        """Ports of this host to which the other one is connected now."""
        shown = subprocess.run(
            [*self.prefix, "ss", "-Htn", "state", "established"], capture_output=True, text=True, check=True
        )
        ends = [line.split()[-2:] for line in shown.stdout.splitlines()]
        return {int(here.rpartition(":")[2]) for here, there in ends if other.address in there}


def hosts(opened: ExitStack) -> tuple[Host, Host]:
    """Two hosts, connected by a wire."""
    pair = tuple(
        Host(name=f"cenote-{os.getpid()}-{number}", address=f"10.99.7.{number}") for number in (1, 2)
    )
    for host in pair:
        subprocess.run(["ip", "netns", "add", host.name], check=True)
        opened.callback(host.end)
    ends = ["ip", "link", "add", "wire", "netns", pair[0].name, "type", "veth", "peer", "name", "wire"]
    subprocess.run([*ends, "netns", pair[1].name], check=True)
    for host in pair:
        for words in (
            ["addr", "add", f"{host.address}/24", "dev", "wire"],
            ["link", "set", "lo", "up"],
            ["link", "set", "wire", "up"],
        ):
            subprocess.run(["ip", "-n", host.name, *words], check=True)
    return pair[0], pair[1]


KNOCK = """
import socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols(["h2"])
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as line, context.wrap_socket(line) as secured:
    print(secured.version(), secured.recv(9))
"""
"""Without a certificate. With TLS 1.3 a server sees that after the handshake: it hangs up, and otherwise greets."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    gateway: Host
    node: Host
    platform: StandingPlatform

    def knock(self, port: int) -> str:
        """The answer of a port of the machine to a client on the gateway's host without a certificate."""
        line = [*self.gateway.prefix, sys.executable, "-c", KNOCK, self.node.address, str(port)]
        return subprocess.run(line, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    with ExitStack() as opened:
        gateway, node = hosts(opened)
        platform = StandingPlatform(tmp_path, gateway.prefix)
        machine = RayMachine(
            platform.environment, ip=node.address, client_port=CLIENT_PORT, prefix=node.prefix
        )
        opened.callback(machine.end)
        machine.wait()
        platform.up("--relay", "--ray-address", f"ray://{node.address}:{CLIENT_PORT}")
        yield Apart(gateway=gateway, node=node, platform=platform)
        platform.command("down")


def opened_in_the_guide() -> list[range]:
    """The ports that, according to the guide, a gateway reaches on the machines of a cluster."""
    rows = re.findall(r"^\| gateway \| [^|]+ \| (\d+)(?:-(\d+))? \|", GUIDE.read_text(), re.MULTILINE)
    return [range(int(first), int(last or first) + 1) for first, last in rows]


def test_the_guide_names_all_ports_between_gateway_and_machines(apart: Apart) -> None:
    """A runtime is created, used and described; all connections between the hosts went to ports that the guide names,
    and the machine never called the gateway. Runtimes are served to components of the platform only.
    """
    where = ("--address", apart.platform.address)
    apart.platform.command("runtime", "create", *where, "far")
    assert "42\n" == apart.platform.command("runtime", "exec", *where, "far", "-c", "print(6 * 7)").stdout
    assert "far" in apart.platform.command("runtime", "ls", *where).stdout
    until(lambda: "1 runtime," in apart.platform.command("status", *where).stdout)
    used = apart.node.ports_used_by(apart.gateway)
    assert CLIENT_PORT in used
    assert [] == [port for port in used if not any(port in ports for ports in opened_in_the_guide())]
    assert {"TLSv1.3 b''"} == {apart.knock(port) for port in used - {CLIENT_PORT}}
    listens = int(apart.platform.address.rpartition(":")[2])
    assert listens not in apart.gateway.ports_used_by(apart.node)
