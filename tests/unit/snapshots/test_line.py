"""Messages between a worker and its warden."""

from __future__ import annotations

import socket

import pytest

from cenote_worker.jail.snapshots.protocol import receive, send, send_copied


def test_a_copy_is_announced_as_any_message_would_be() -> None:
    """The fast path after each cell is equivalent to the normal message."""
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
    """It is no message either. The line ends when the other end is closed."""
    worker, warden = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with warden:
        with worker:
            worker.send(b"")
            with pytest.raises(ValueError, match="JSON"):
                receive(warden)
        assert receive(warden) is None
