# %% A package of the standard library
import ast
import json
from pathlib import Path

folder = Path(json.__file__).parent
sources = {path.name: path.read_text() for path in sorted(folder.glob("*.py"))}
# %% Trees
trees = {name: ast.parse(text) for name, text in sources.items()}
# %% A record of each function
from dataclasses import dataclass, field

@dataclass
class Found:
    module: str
    name: str
    lines: int
    calls: list = field(default_factory=list)

found = []
for module, tree in trees.items():
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.append(Found(module, node.name, node.end_lineno - node.lineno + 1))
# %% Calls, filled in later
by_name = {(f.module, f.name): f for f in found}
for module, tree in trees.items():
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
                    by_name[module, node.name].calls.append(inner.func.id)
# %% Longest
longest = max(found, key=lambda f: (f.lines, f.name))
print(longest.module, longest.name)
# %% Lengths
import statistics

lengths = [f.lines for f in found]
middle = statistics.median(lengths)
# %% Callers of one another
graph = {f.name: sorted(set(f.calls) & {g.name for g in found}) for f in found}
edges = sum(len(targets) for targets in graph.values())
# %% Branches
branches = {name: sum(isinstance(n, (ast.If, ast.For, ast.While, ast.Try)) for n in ast.walk(tree)) for name, tree in trees.items()}
# %% Busiest
busiest = max(branches, key=lambda name: (branches[name], name))
# %% Report
print(f"{len(found)} functions, median {middle} lines, {edges} edges, busiest {busiest}, longest {longest.name}")
