"""Code for a FastMCP server cleans a table in three turns; the second turn is taken back.

python examples/adapters/fastmcp_code_mode.py        needs `pip install 'cenote[data,fastmcp]'`
"""

from __future__ import annotations

import asyncio

import pandas as pd
from fastmcp import Client, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode

from cenote import PythonRuntime, Variable
from cenote.adapters.fastmcp import CenoteSandboxProvider

ORDERS = pd.DataFrame(
    {
        "id": [1, 2, 2, 3, 4],
        "city": ["Oslo", "oslo ", "oslo ", "Bergen", None],
        "paid": [10.0, None, None, 30.0, 20.0],
    }
)

CODE = [  # what a model would send
    "orders = orders.drop_duplicates()\nreturn len(orders)",
    "orders = orders.dropna()\nreturn len(orders)",
    "usual = (await call_tool('usual_city', {}))['result']\n"
    "orders['city'] = orders.city.str.strip().str.title().fillna(usual)\n"
    "orders['paid'] = orders.paid.fillna(orders.paid.median())\n"
    "return str(orders.groupby('city').paid.sum().to_dict())",
]


async def main(runtime: PythonRuntime) -> None:
    server = FastMCP("orders", transforms=[CodeMode(sandbox_provider=CenoteSandboxProvider(runtime))])

    @server.tool
    def usual_city() -> str:
        """The city of an order that names none; this function runs in your process."""
        return "Oslo"

    async with Client(server) as client:

        async def ask(code: str) -> str:
            return str((await client.call_tool("execute", {"code": code})).content[0].text)

        print("rows without repetitions:", await ask(CODE[0]))
        before = await asyncio.to_thread(runtime.snapshot, "before dropping")
        print("rows that are complete:", await ask(CODE[1]))
        await asyncio.to_thread(runtime.rollback, before)  # too much is lost
        print("paid:", await ask(CODE[2]))


with PythonRuntime(variables=[Variable("orders", ORDERS)]) as runtime:
    asyncio.run(main(runtime))
