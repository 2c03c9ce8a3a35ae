"""A user of a platform in its own process, which can be killed: random work, each answer checked.

python soak_user.py ADDRESS TOKEN SEED SECONDS

Prints one JSON object when the seconds are over and an action succeeded, or none did for long: the correct steps, the
reported losses, and the errors.
"""

from __future__ import annotations

import faulthandler
import json
import random
import sys
import time
import traceback
from collections.abc import Callable

import cenote.runtime.remote.platform_client as platform_client
import cenote.runtime.remote.references as references
from cenote import Function, PythonRuntime, SandboxPolicy, Variable
from cenote.runtime import ExecutionResult
from cenote_security.errors import CenoteError

SMALL = SandboxPolicy(preload=(), memory="256MiB")
LINES = "".join(f"line {number}\n" for number in range(200))
DIE = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
KILLED = ("lost", "rolled_back")
BACK = "the namespace is back as it was"

SHORT = 8.0
"""Seconds of leases, so that a killed user's resources go within the test."""


HANGS = 100.0
"""Seconds after which a user that is stuck in an action prints its stack."""


class Told(Exception):
    """A result reported a loss."""


class User:
    def __init__(self, address: str, token: str, seed: int) -> None:
        self._address, self._token = address, token
        self._chance = random.Random(seed)
        self.steps, self.told, self.wrong = 0, list[str](), list[str]()

    def work(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (now := time.monotonic()) < ends or (not self.steps and now < ends + HANGS):
            try:
                with self._runtime() as runtime:
                    self._use(runtime, ends)
            except (CenoteError, Told) as error:
                self.told.append(f"{type(error).__name__}: {error}")
                time.sleep(0.3)  # no server for the moment
            except Exception:
                self.wrong.append(traceback.format_exc())

    def _runtime(self) -> PythonRuntime:
        faulthandler.dump_traceback_later(HANGS)
        return PythonRuntime(sandbox=SMALL, address=self._address, token=self._token)

    def _use(self, runtime: PythonRuntime, ends: float) -> None:
        runtime.inject(Function(doubled, host=True, effect="pure"))
        self._expect(runtime, "count = 0; count", "0")
        deeds: list[Callable[[PythonRuntime], None]] = [
            *[self._count] * 4,
            self._print,
            self._call,
            self._share,
            self._attach,
            self._go_back,
            self._die,
        ]
        self._count_to = 0
        for _ in range(self._chance.randrange(3, 25)):
            faulthandler.dump_traceback_later(HANGS)
            self._chance.choice(deeds)(runtime)
            self.steps += 1
            if time.monotonic() > ends:
                return

    # -- deeds --

    def _count(self, runtime: PythonRuntime) -> None:
        self._count_to += 1
        pause = self._chance.random() / 5
        self._expect(runtime, f"import time; time.sleep({pause}); count += 1; count", str(self._count_to))

    def _print(self, runtime: PythonRuntime) -> None:
        heard: list[str] = []
        result = runtime.execute(
            "for number in range(200): print('line', number)", on_output=lambda _, text: heard.append(text)
        )
        self._check(result)
        if (result.stdout, "".join(heard)) != (LINES, LINES):
            self.wrong.append(f"printed {result.stdout!r}, heard {heard!r}")

    def _call(self, runtime: PythonRuntime) -> None:
        number = self._chance.randrange(1000)
        result = runtime.execute(f"doubled({number})")
        if (
            result.error is not None and result.error.type == "RuntimeError"
        ):  # its relay was killed during the call
            raise Told(str(result.error))
        self._check(result)
        if result.value != str(2 * number):
            self.wrong.append(f"doubled {number} is {result}")

    def _share(self, runtime: PythonRuntime) -> None:
        number = self._chance.randrange(1000)
        self._expect(runtime, f"data = [{number}] * {self._chance.choice([1, 50_000])}; data[0]", str(number))
        reference = runtime.share("data")
        with self._runtime() as other:
            other.inject(Variable("data", reference))
            self._expect(other, "data[-1]", str(number))

    def _attach(self, runtime: PythonRuntime) -> None:
        """A new author has lost nothing: a loss is reported to the owner."""
        with runtime.attach("guest", scope="private") as guest:
            result = guest.execute("mine = 1; shared.count")
            if result.state not in KILLED and result.value != (count := str(self._count_to)):
                self._expect(runtime, "count", count)
                self.wrong.append(f"shared.count gave {result} in place of {count}")
            self._check(result)

    def _go_back(self, runtime: PythonRuntime) -> None:
        kept = runtime.snapshot()
        self._expect(runtime, "count += 100; count", str(self._count_to + 100))
        runtime.rollback(kept.step)
        self._expect(runtime, "count", str(self._count_to))

    def _die(self, runtime: PythonRuntime) -> None:
        if (result := runtime.execute(DIE)).state not in KILLED:
            self.wrong.append(f"a cell that kills its process gave {result}")
        if result.state == "lost":
            raise Told(str(result.error))
        self._expect(runtime, "count", str(self._count_to))

    # -- answers --

    def _expect(self, runtime: PythonRuntime, code: str, value: str) -> None:
        result = runtime.execute(code)
        self._check(result)
        if result.value != value:
            self.wrong.append(f"{code} gave {result} in place of {value}")

    def _check(self, result: ExecutionResult) -> None:
        if result.state in KILLED:
            raise Told(str(result.error))
        if back := [told for told in result.news if BACK in told]:  # its process was killed between two cells
            raise Told(back[0])
        if not result.success:
            self.wrong.append(str(result))


def doubled(number: int) -> int:
    """Twice the number."""
    return 2 * number


def main(address: str, token: str, seed: str, seconds: str) -> None:
    references.LEASE, references.RENEW_EVERY, platform_client.LEASE = SHORT, SHORT / 4, SHORT
    user = User(address, token, int(seed))
    user.work(float(seconds))
    print(json.dumps({"steps": user.steps, "told": user.told, "wrong": user.wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
