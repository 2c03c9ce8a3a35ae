"""A worker for tests: each frame is source; the answer is the JSON of the value of `result`."""

from __future__ import annotations

import json
import os
import socket

from cenote_worker.process.worker_settings import WorkerSettings


def main(frames: int, settings: WorkerSettings) -> None:
    channel = socket.socket(fileno=frames)
    namespace: dict[str, object] = {"settings": settings, "channel": channel}
    while source := channel.recv(2**20):
        try:
            namespace["result"] = None
            exec(compile(source, "<cell>", "exec"), namespace)
            answer = {"result": namespace["result"]}
        except BaseException as error:
            answer = {
                "error": type(error).__name__,
                "text": str(error),
                "errno": getattr(error, "errno", None),
            }
        channel.send(json.dumps(answer, default=repr).encode())
    os._exit(0)
