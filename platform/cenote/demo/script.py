"""What the three scripted models say. The words are canned; the code runs, fails and is refused for real.

The cleaner's last cell takes the column's name from the error that it was shown, so that a run in which
the hint is missing does not look like one in which it helped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cenote.models.messages import Message

TASK = (
    "`raw` holds field notes on penguins. Have the cleaner turn them into a tidy table and the analyst find out, "
    "per species, how body mass goes with flipper length, with a figure. Answer in two sentences with the numbers."
)

ORCHESTRATOR = [
    """The notes go to the cleaner; I need not read them.
```python
cleaner.runtime.update_variable("raw", raw)
answer = await cleaner.run(
    "`raw` holds field notes on penguins. Put a tidy table into `clean`: only birds that were measured and "
    "sexed; columns species (one word), island, sex, flipper_mm, mass_g."
)
print(answer)
table = cleaner.runtime.share("clean")
print(table)
```""",
    """The table is ready. The analyst gets it by reference.
```python
analyst.runtime.update_variable("penguins", table)
answer = await analyst.run(
    "Per species in `penguins`: correlation of mass_g with flipper_mm, and grams per mm from a straight line. "
    "Put a dict per species into `findings`, and a scatter plot with the lines as PNG bytes into `figure`."
)
print(answer)
findings = analyst.runtime.retrieve("findings")
show(findings)
```""",
    """Now the answer, from the numbers themselves.
```python
strongest = max(findings, key=lambda species: findings[species]["r"])
parts = [f"{name} {f['grams_per_mm']} g per mm (r = {f['r']}, n = {f['n']})" for name, f in findings.items()]
reply(f"In all three species heavier birds have longer flippers: {'; '.join(parts)}. "
      f"The tie is closest in {strongest} penguins.")
```""",
]

_REPAIR = """The column's full name has its unit. I use what the error names.
```python
clean = pd.DataFrame({
    "species": raw["Species"].str.split().str[0],
    "island": raw["Island"],
    "sex": raw["Sex"].str.lower(),
    "flipper_mm": raw["%s"],
    "mass_g": raw["Body Mass (g)"],
}).dropna().reset_index(drop=True)
print(len(raw), "rows in,", len(clean), "rows out")
show(clean, rows=4)
```"""


def _repair(messages: Sequence[Message]) -> str:
    hint = re.search(r"Flipper Length \(\w+\)", messages[-1].content)
    return repair_with(hint[0]) if hint else "The error does not say which columns there are, so I give up."


def repair_with(column: str) -> str:
    """The turn that uses the column named by the error."""
    return _REPAIR % column


CLEANER: list[str | Callable[[Sequence[Message]], str]] = [
    """First I look whether there is a newer edition of these notes.
```python
import urllib.request

print(urllib.request.urlopen("https://example.org/penguins.csv").status)
```""",
    """No way out, then; the notes at hand will do.
```python
import pandas as pd

missing = raw.isna().sum()
print(raw.shape, missing[missing > 0].to_dict())
print(raw["Species"].unique().tolist())
```""",
    """Eleven birds were not sexed, two were not measured. I take the columns that are wanted.
```python
clean = pd.DataFrame({
    "species": raw["Species"].str.split().str[0],
    "island": raw["Island"],
    "sex": raw["Sex"].str.lower(),
    "flipper_mm": raw["Flipper Length"],
    "mass_g": raw["Body Mass (g)"],
})
```""",
    _repair,
    "`clean` holds the birds that were measured and sexed, with the five columns asked for.",
]

ANALYST = [
    """```python
import numpy as np

findings = {}
for species, birds in penguins.groupby("species"):
    slope, intercept = np.polyfit(birds["flipper_mm"], birds["mass_g"], 1)
    findings[species] = {
        "n": len(birds),
        "r": round(float(birds["flipper_mm"].corr(birds["mass_g"])), 2),
        "grams_per_mm": round(float(slope), 1),
        "intercept": round(float(intercept), 1),
    }
show(findings)
```""",
    """Now the figure.
```python
import io
import matplotlib.pyplot as plt

canvas, axes = plt.subplots(figsize=(7, 4.5))
for species, birds in penguins.groupby("species"):
    points = axes.scatter(birds["flipper_mm"], birds["mass_g"], s=14, alpha=0.6, label=species)
    ends = np.array([birds["flipper_mm"].min(), birds["flipper_mm"].max()])
    line = findings[species]["grams_per_mm"] * ends + findings[species]["intercept"]
    axes.plot(ends, line, color=points.get_facecolor()[0][:3])
axes.set(xlabel="flipper length (mm)", ylabel="body mass (g)", title="Flipper length and body mass of penguins")
axes.legend()
canvas.tight_layout()
buffer = io.BytesIO()
canvas.savefig(buffer, format="png", dpi=120)
figure = buffer.getvalue()
plt.close(canvas)
print(len(figure), "bytes")
```""",
    "The numbers are in `findings`, the plot is in `figure`.",
]
