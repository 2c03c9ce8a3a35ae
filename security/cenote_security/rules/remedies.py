"""What to do instead of the usual things that rules do not allow. A rule's own `remedy` goes first."""

from __future__ import annotations

from collections.abc import Mapping

NO_NETWORK = "there is no network here: use an injected function that fetches it, or say what you need"

MODULES: Mapping[str, str] = {
    "ctypes": "use numpy, or an injected function",
    "importlib": "write a plain import statement",
    "marshal": "use json or parquet",
    "os": "use pathlib for paths and the injected functions for everything else",
    "pickle": "use json, parquet or the variables that are in the namespace already",
    "requests": NO_NETWORK,
    "socket": NO_NETWORK,
    "subprocess": "do it in Python, or use an injected function",
    "urllib": NO_NETWORK,
}

FUNCTIONS: Mapping[str, str] = {
    "builtins.__import__": "write a plain import statement",
    "builtins.breakpoint": "print what you want to see",
    "builtins.compile": "write the code in the cell itself",
    "builtins.eval": "write the expression itself, or use ast.literal_eval for data",
    "builtins.exec": "write the code in the cell itself",
    "builtins.exit": "end the code there, or put the rest under an if",
    "builtins.globals": "use the variable by its name, or keep values in a dict of your own",
    "builtins.input": "ask the user in your answer",
    "builtins.locals": "use the variable by its name, or keep values in a dict of your own",
    "builtins.open": "use the injected functions and the variables that are in the namespace already",
    "builtins.quit": "end the code there, or put the rest under an if",
    "builtins.vars": "name the attributes that you need",
    "importlib.import_module": "write a plain import statement",
    "os._exit": "end the code there, or put the rest under an if",
    "os.popen": "do it in Python, or use an injected function",
    "os.system": "do it in Python, or use an injected function",
    "sys.exit": "end the code there, or put the rest under an if",
}
