"""A module, its tests and its documents: an agent changes one function, and only its dependents are made again.

python examples/portfolio.py
"""

from __future__ import annotations

import asyncio

from model_choice import choose_model

from cenote import CaveAgent, PythonRuntime, Variable
from cenote.harness import Artifact, BuildResult

ORDERS = [
    {"item": "lamp", "net": 120.0, "pieces": 2},
    {"item": "desk", "net": 90.0, "pieces": 1},
    {"item": "chair", "net": 60.0, "pieces": 4},
]

MODULE = """%%writefile shop.py
def tax(net):
    return round(net * 0.20, 2)

def gross(net):
    return net + tax(net)

def label(order):
    return f"{order['pieces']} x {order['item']}"

def heavy(orders):
    return [order for order in orders if order["pieces"] > 3]
"""

TESTS = """%%writefile test_shop.py
import shop

ORDER = {"item": "lamp", "net": 10.0, "pieces": 4}

def test_tax_is_a_part():
    assert 0 < shop.tax(100.0) < 100.0

def test_gross_is_more():
    assert shop.gross(100.0) > 100.0

def test_label_counts():
    assert shop.label(ORDER).startswith("4 x")

def test_label_names():
    assert "lamp" in shop.label(ORDER)

def test_heavy_is_found():
    assert shop.heavy([ORDER]) == [ORDER]

def test_light_is_not():
    assert shop.heavy([{**ORDER, "pieces": 1}]) == []
"""

SCRIPT = [
    f"```python\n{MODULE}```",
    f"```python\n{TESTS}```",
    "```python\nfrom pathlib import Path\n"
    "packing = \"\\n\".join(f\"- {o['item']}: {o['pieces']}\" for o in orders)\n"
    'written = Path("packing.md").write_text(f"# To pack\\n{packing}\\n")\n```',
    "```python\nimport shop\n"
    "total = sum(shop.gross(o['net']) for o in orders)\n"
    'written = Path("report.md").write_text(f"# Sales\\nWith tax: {total:.2f}\\n")\n```',
    "The module, its tests, the report and the packing list are there.",
    # The second task. The model writes an edit, as models do; it has loaded the module before.
    "```python\n"
    'source = Path("shop.py").read_text()\n'
    'edited = Path("shop.py").write_text(source.replace("0.20", "0.19"))\n```',
    "The tax is 19 % now.",
]

ARTIFACTS = [
    Artifact("shop.py", "module"),
    Artifact("test_shop.py", "tests"),
    Artifact("report.md", "document"),
    Artifact("packing.md", "document"),
]


def show(result: BuildResult, runtime: PythonRuntime) -> None:
    """What was made again, and what was skipped."""
    print(f"--- {result.status}; was out of date: {', '.join(result.rebuilt) or 'nothing'}")
    print(
        f"tests: {len(result.ran)} of {len(result.tests)} run, spared: {', '.join(result.spared) or 'none'}"
    )
    if result.applied is not None:
        print(f"steps: {len(result.applied.steps_rerun)} of {len(runtime.state.steps)} run again")
    print("report:", runtime.files.read("report.md").decode().splitlines()[-1])


async def main() -> None:
    with PythonRuntime(variables=[Variable("orders", ORDERS, "Orders of a day")]) as runtime:
        agent, state = CaveAgent(choose_model(SCRIPT), runtime=runtime), runtime.state
        await agent.run("Write a module for taxes with tests, a report of the orders, and a packing list.")
        state.declare(*ARTIFACTS)
        show(state.build(), runtime)

        await agent.run("The tax is 19 %.")
        state.refresh()
        for artifact in state.artifacts:
            for reason in artifact.stale:
                print(f"{artifact.name}: {reason}")
        show(state.build(), runtime)
        for version in state.artifact("report.md").versions:
            print(f"report.md is by step {version.step}, model call {version.cause.rpartition('.')[2]}")


asyncio.run(main())
