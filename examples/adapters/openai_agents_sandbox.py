"""A sandbox agent of the OpenAI Agents SDK cleans a file with shell and Python; the second turn is taken back.

python examples/adapters/openai_agents_sandbox.py        needs `pip install 'cenote[data,openai_agents]'`
"""

from __future__ import annotations

from agents import RunConfig, Runner, set_tracing_disabled
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.entries import File
from agents.testing import ScriptedModel, assistant_message, function_call

from cenote import PythonRuntime
from cenote.adapters.openai_agents import PythonCapability
from cenote.adapters.openai_agents_sandbox import CenoteSandboxClient

ORDERS = b"id;city;paid\n1;Oslo;10\n2;oslo ;\n2;oslo ;\n3;Bergen;30\n4;;20\n"

TURNS = {
    "Drop repeated orders.": (
        ("exec_command", {"cmd": "tr ';' ',' < orders.txt > orders.csv"}),
        (
            "python",
            {"code": "import pandas\norders = pandas.read_csv('orders.csv').drop_duplicates()\nlen(orders)"},
        ),
    ),
    "Drop what is missing.": (("python", {"code": "orders = orders.dropna()\nlen(orders)"}),),
    "Fill in what is missing, and sum up by city.": (
        (
            "python",
            {
                "code": "orders['city'] = orders.city.str.strip().str.title().fillna('Oslo')\n"
                "orders['paid'] = orders.paid.fillna(orders.paid.median())\n"
                "orders.groupby('city').paid.sum().to_dict()"
            },
        ),
    ),
}

set_tracing_disabled(True)
with PythonRuntime() as runtime:
    client = CenoteSandboxClient(runtime)  # each run has a session in the jail of this runtime

    def ask(task: str) -> str:
        script = [
            [function_call(tool, given, call_id=f"{task} {at}")]
            for at, (tool, given) in enumerate(TURNS[task])
        ]
        agent = SandboxAgent(
            name="cleaner",
            model=ScriptedModel([*script, [assistant_message("done")]]),
            instructions="Clean the orders.",
            default_manifest=Manifest(entries={"orders.txt": File(content=ORDERS)}),
            capabilities=[Shell(), PythonCapability(timeout=30)],
        )
        done = Runner.run_sync(agent, task, run_config=RunConfig(sandbox=SandboxRunConfig(client=client)))
        return [str(item.output) for item in done.new_items if item.type == "tool_call_output_item"][-1]

    first, second, third = TURNS
    print("rows without repetitions:", ask(first))
    before = runtime.snapshot("before dropping")
    print("rows that are complete:", ask(second))
    runtime.rollback(before)  # too much is lost
    print("paid:", ask(third))
