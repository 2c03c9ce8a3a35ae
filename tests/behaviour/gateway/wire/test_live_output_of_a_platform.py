"""The output of a cell that another client of a platform runs: relayed and direct, with a token that only reads."""

from __future__ import annotations

import threading

from tests.support.gateway.world import BARE, World
from tests.waiting import PATIENCE, until

from cenote.connection import connect
from cenote_security.auth.tokens import Scope

LOOP = "print('begun')\nwhile True: time.sleep(0.01)"


def test_a_reader_sees_the_cell_of_another_client(either: World) -> None:
    writer, reader = either.user("acme"), either.user("acme", scopes=[Scope.RUNTIMES_READ])
    at = connect(either.address, token=writer.token)
    with at.runtime("watched", sandbox=BARE) as runtime:
        runtime.execute("import time")
        ana = runtime.attach("ana")
        thread = threading.Thread(target=ana.execute, args=(LOOP,))
        thread.start()
        with connect(either.address, token=reader.token).runtime("watched") as seen:
            found = until(lambda: now if (now := seen.live_output()).end else None)
            assert (2, "ana", (("stdout", "begun\n"),)) == (found.step, found.author, found.pieces)
            assert () == seen.live_output(found).pieces
        assert runtime.live_output().step == 2  # it goes on
        assert ana.interrupt()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        at.delete("watched")
