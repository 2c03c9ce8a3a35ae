"""Host calls of a jail, made in a copy of the process that had the channel."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from tests.waiting import PATIENCE

from cenote_proto.v1 import jail_pb2
from cenote_worker.jail.values.host_channel import HostCallFailed, HostChannel
from cenote_worker.transport.content import Content
from cenote_worker.transport.packets import receive_packet, send_packet


def test_a_copy_hears_answers_though_its_original_was_killed_while_it_rested() -> None:
    """Both have the descriptor that stops a reader: a value left in it is not meant for the copy's reader."""
    supervisor, jail = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = HostChannel(jail, send_packet)
    os.eventfd_write(channel._rest, 1)
    channel.revive()
    number, future = channel.call("f", "", Content.pack([]))
    packet = receive_packet(supervisor)
    assert packet is not None
    assert number == jail_pb2.HostRequest.FromString(packet.data).call.id
    reply = jail_pb2.HostReply(id=number)
    reply.error.type = "ValueError"
    send_packet(supervisor, reply.SerializeToString(), [])
    with pytest.raises(HostCallFailed, match="ValueError"):
        future.result(PATIENCE)
    channel.rest()
    supervisor.close()
    jail.close()


def test_behind_its_rest_the_kernel_has_no_thread_of_it() -> None:
    """Otherwise a later copy is refused because of a thread of unknown origin."""
    supervisor, jail = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = HostChannel(jail, send_packet)
    for _ in range(200):
        channel.release(1)
        assert channel._reader is not None
        task = Path(f"/proc/self/task/{channel._reader.native_id}")
        channel.rest()
        assert not task.exists()
        packet = receive_packet(supervisor)
        assert packet is not None
    supervisor.close()
    jail.close()
