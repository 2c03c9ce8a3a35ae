"""Commands in a NeMo Gym sandbox clean a table in three turns; the second turn is taken back.

python examples/adapters/nemo_gym_sandbox.py        needs `pip install 'cenote[data,nemo_gym]'`
"""

from __future__ import annotations

import asyncio

from nemo_gym.sandbox.providers import SandboxSpec, create_provider, register_provider

from cenote.adapters.nemo_gym import CenoteJailProvider

ORDERS = "id,city,paid\n1,Oslo,10\n2,oslo ,\n2,oslo ,\n3,Bergen,30\n4,,20\n"

READ, WRITE = (
    "import pandas as pd; orders = pd.read_csv('orders.csv')",
    "orders.to_csv('orders.csv', index=False)",
)
CODE = [  # what an agent would run
    f"{READ}; orders = orders.drop_duplicates(); {WRITE}; print(len(orders))",
    f"{READ}; orders = orders.dropna(); {WRITE}; print(len(orders))",
    f"{READ}; orders['city'] = orders.city.str.strip().str.title().fillna('Oslo'); "
    "orders['paid'] = orders.paid.fillna(orders.paid.median()); "
    "print(orders.groupby('city').paid.sum().to_dict())",
]


async def main() -> None:
    provider = create_provider({"cenote": {"memory": "1GiB"}})
    sandbox = await provider.create(SandboxSpec())
    try:
        runtime = sandbox.raw
        await runtime.files.write("orders.csv", ORDERS)

        async def run(code: str) -> str:
            return str((await provider.exec(sandbox, f'python3 -c "{code}"')).stdout).strip()

        print("rows without repetitions:", await run(CODE[0]))
        before = await runtime.snapshot("before dropping")
        print("rows that are complete:", await run(CODE[1]))
        await runtime.rollback(before)  # too much is lost
        print("paid:", await run(CODE[2]))
    finally:
        await provider.aclose()


# Where Cenote is installed, its entry point does this.
register_provider("cenote", CenoteJailProvider, override=True)
asyncio.run(main())
