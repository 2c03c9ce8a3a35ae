# %% Categories of the basic plane
import unicodedata
from collections import defaultdict

census = defaultdict(list)
for point in range(0x3000):
    census[unicodedata.category(chr(point))].append(point)
# %% Sizes
sizes = {category: len(points) for category, points in sorted(census.items())}
print(sizes)
# %% Upper case without a lower case
lonely = [chr(p) for p in census["Lu"] if chr(p).lower() == chr(p)]
# %% Scripts by first word
def script(point):
    return unicodedata.name(chr(point), "UNNAMED").split()[0]

scripts = defaultdict(int)
for category in ("Lu", "Ll", "Lo"):
    for point in census[category]:
        scripts[script(point)] += 1
# %% Largest scripts
largest = sorted(scripts.items(), key=lambda item: (-item[1], item[0]))[:5]
print(largest)
# %% Digits and their values
digits = {chr(p): unicodedata.digit(chr(p)) for p in census["Nd"]}
total = sum(digits.values())
# %% Decompositions
pieces = [unicodedata.normalize("NFD", chr(p)) for p in census["Ll"]]
decomposed = sum(len(piece) > 1 for piece in pieces)
# %% Drop the unassigned, in place
unassigned = len(census.pop("Cn"))
# %% Share
assigned = sum(len(points) for points in census.values())
share = assigned / (assigned + unassigned)
# %% Report
print(f"{len(lonely)} lonely capitals, digits add up to {total}, {decomposed} decompose, {share:.3f} assigned")
