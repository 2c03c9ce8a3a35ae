"""Makes the pictures of docs/console.md: starts a platform, has it do something, and photographs four pages.

Takes Debian's chromium, and Playwright of the test dependencies: `.venv/bin/python scripts/console_screenshots.py`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from cenote import SandboxPolicy, connect
from cenote.connection import Platform
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.process.platform import platform
from cenote.gateway.store.state_folder import StateFolder
from cenote.plans import step
from cenote.platform_team import ModelSpec
from cenote.runtime.remote.address import token_file
from cenote.team.budget import Budget

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "docs" / "images"

MOST_BYTES: Final = 150_000

POLICY: Final = SandboxPolicy(preload=())

PAGES: Final = {
    "runtime": "/runtimes/penguins",
    "dependencies": "/runtimes/penguins/dependencies",
    "job": "/jobs/masses",
    "team": "/teams/review",
}

CELLS: Final = (
    "penguins = [('Adelie', 3750), ('Gentoo', 5050), ('Chinstrap', 3700), ('Gentoo', 5700), ('Adelie', 3800)]",
    "by_species = {}\nfor species, mass in penguins:\n    by_species.setdefault(species, []).append(mass)",
    "means = {species: sum(masses) / len(masses) for species, masses in by_species.items()}",
    "heaviest = max(means, key=means.get)",
    "print(f'{heaviest}: {means[heaviest]:.0f} g')",
    "means['Emperor']",
)

ANSWERS: Final = (
    "I read the masses.\n```python\nmasses = [3750, 5050, 3700, 5700, 3800]\nprint(len(masses), 'penguins')\n```",
    "The mean is next.\n```python\nmean = sum(masses) / len(masses)\nprint(round(mean), 'g')\n```",
    "The five penguins have a mean mass of 4400 g.",
)


def main() -> int:
    program = shutil.which("chromium")
    if program is None:
        print("there is no chromium: `apt-get install chromium`", file=sys.stderr)
        return 4
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {f"XDG_{kind}_HOME": folder for kind in ("STATE", "CONFIG")}
        options = PlatformOptions(
            state=StateFolder(path=Path(folder) / "state"), port=0, http="127.0.0.1:0", without_ray=True
        )
        with platform(options) as running:
            work(connect(running.address, wait=0))
            photograph(program, running.http, token_file().read_text().strip())
    return 0


def work(client: Platform) -> None:
    with client.runtime("penguins", sandbox=POLICY) as runtime:
        for code in CELLS:
            runtime.execute(code)
    tasks = [{"id": f"island-{number}", "code": code} for number, code in enumerate(_tasks(), start=1)]
    job = client.jobs.submit(tasks, name="masses", sandbox=POLICY, concurrency=2)
    asyncio.run(review(client))
    job.wait(120)


def _tasks() -> list[str]:
    return [f"{{'mass': {number}}}['{'mass' if number % 4 else 'weight'}']" for number in range(1, 13)]


async def review(client: Platform) -> None:
    team = client.team("review", budget=Budget(tokens=5_000), sandbox=POLICY)
    team.add("analyst", model=ModelSpec(name="gpt-5", script=ANSWERS))
    await team.run(step("analyst", "What is the mean mass of the penguins?", gives="mean"))


def photograph(program: str, url: str, token: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 1100, "height": 820}).new_page()
        page.goto(f"{url}/sign-in")
        page.fill("#token", token)
        page.click("button")
        for name, path in PAGES.items():
            page.goto(url + path)
            picture = page.screenshot(path=FOLDER / f"console-{name}.png")
            if len(picture) > MOST_BYTES:
                raise SystemExit(f"console-{name}.png has {len(picture)} bytes, more than {MOST_BYTES}")
            print(f"console-{name}.png: {len(picture)} bytes")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
