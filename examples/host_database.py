"""A database that stays in this process: the jail has no access to it except two functions that run here.

`host=True` makes a function such an interface. Only the function decides what passes: here, reading orders and
cancelling one that has not been shipped.
"""

from __future__ import annotations

import asyncio
import sqlite3

from model_choice import choose_model

from cenote import CaveAgent
from cenote.runtime import Function, PythonRuntime

SCRIPT = [
    """```python
orders = find_orders("ada")
show(orders)
for order in orders:
    if order["item"] == "lamp":
        try:
            print(order["id"], cancel_order(order["id"]))
        except ValueError as error:
            print(order["id"], error)
```""",
    "I cancelled your second lamp (order 3). The first one (order 1) has been shipped already, so it stays.",
]


class Shop:
    """Orders in SQLite. The credentials of a real database would be here too, where the jail cannot reach them."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.row_factory = sqlite3.Row
        self._database.executescript(
            """
            CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, item TEXT, price REAL, status TEXT);
            INSERT INTO orders VALUES (1, 'ada', 'lamp', 39.5, 'shipped'), (2, 'ada', 'desk', 249.0, 'paid'),
                                      (3, 'ada', 'lamp', 39.5, 'paid'), (4, 'bob', 'chair', 89.0, 'paid');
            """
        )

    def find_orders(self, customer: str) -> list[dict[str, object]]:
        """All orders of a customer"""
        rows = self._database.execute("SELECT * FROM orders WHERE customer = ? ORDER BY id", (customer,))
        return [dict(row) for row in rows]

    def cancel_order(self, order_id: int) -> str:
        """Cancel an order that has not been shipped"""
        with self._database:
            change = "UPDATE orders SET status = 'cancelled' WHERE id = ? AND status = 'paid'"
            if self._database.execute(change, (order_id,)).rowcount == 0:
                raise ValueError("no such order that could still be cancelled")
        return "cancelled"


async def main() -> None:
    shop = Shop()
    runtime = PythonRuntime(
        functions=[
            Function(shop.find_orders, host=True, effect="pure"),
            Function(shop.cancel_order, host=True, effect="idempotent"),
        ]
    )
    with runtime:
        agent = CaveAgent(choose_model(SCRIPT), runtime=runtime)
        response = await agent.run("I am ada. Please cancel the lamps that I ordered.")
        print("answer:", response.content)
        for order in shop.find_orders("ada"):
            print(order)
        attempt = runtime.execute(
            "import sqlite3; sqlite3.connect('shop.db').execute('SELECT * FROM orders')"
        )
        print("without the functions:", attempt.error.message if attempt.error else "(reached!)")


asyncio.run(main())
