# %% The text that Python ships
import codecs
import contextlib
import io

with contextlib.redirect_stdout(io.StringIO()):
    import this
text = codecs.decode(this.s, "rot13")
# %% Lines
lines = [line for line in text.splitlines() if line.strip()]
title, sayings = lines[0], lines[1:]
# %% Words
import re

def words(line):
    return re.findall(r"[a-z']+", line.lower())

vocabulary = {}
for line in sayings:
    for word in words(line):
        vocabulary.setdefault(word, []).append(line)
# %% Frequent
frequent = sorted(vocabulary, key=lambda word: (-len(vocabulary[word]), word))[:5]
print(frequent)
# %% A generator that is read in two steps
def better():
    for line in sayings:
        if "better than" in line:
            yield line.split(" is ")[0]

preferences = better()
first = next(preferences)
# %% The rest of it
rest = list(preferences)
print(first, len(rest))
# %% Letters
from collections import Counter

letters = Counter(character for line in sayings for character in line.lower() if character.isalpha())
# %% Entropy
import math

total = sum(letters.values())
entropy = -sum(n / total * math.log2(n / total) for n in letters.values())
# %% Longest saying
longest = max(sayings, key=len)
# %% Save
with open("zen.txt", "w") as out:
    out.write("\n".join(sorted(sayings)))
# %% Count what was saved
saved = len(open("zen.txt").read().splitlines())
# %% Report
print(f"{title}: {saved} sayings, {entropy:.4f} bits a letter, first preference: {first}")
