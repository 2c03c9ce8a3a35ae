"""What a worker and its warden say to each other."""

from __future__ import annotations

import socket

import pytest

from cenote_worker.jail.snapshots.protocol import receive, send, send_copied


def test_a_copy_is_announced_as_any_message_would_be() -> None:
    """The short way that is taken after each cell is only that."""
    worker, warden = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with worker, warden:
        send(worker, {"op": "copy", "pid": 7, "step": 2**61, "files": 0}, worker)
        send_copied(worker, 7, 2**61, 0, worker)
        first, second = receive(warden), receive(warden)
        assert first is not None
        assert second is not None
        assert first.message == second.message
        for heard in first, second:
            assert heard.attached is not None
            heard.attached.close()


def test_an_empty_message_is_no_end() -> None:
    """It is no message either. The end of the line is when the other end was closed."""
    worker, warden = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with warden:
        with worker:
            worker.send(b"")
            with pytest.raises(ValueError, match="JSON"):
                receive(warden)
        assert receive(warden) is None
