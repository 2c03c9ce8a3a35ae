# %% Load
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
# %% Scale in place
images /= 16.0
# %% An alias and a view
pixels = images
middle = pixels.reshape(-1, 8, 8)[:, 2:6, 2:6]
# %% Ink
ink = middle.mean(axis=(1, 2))
print([round(float(ink[labels == d].mean()), 3) for d in range(10)])
# %% Neighbours
import numpy as np

def vote(queries, known, answers, k):
    distance = ((queries[:, None, :] - known[None]) ** 2).sum(axis=2)
    closest = np.argsort(distance, axis=1, kind="stable")[:, :k]
    return np.array([np.bincount(answers[row], minlength=10).argmax() for row in closest])
# %% Parameters
settings = {"k": 3, "known": 900, "asked": 300}
# %% Predict
known, asked = pixels[: settings["known"]], pixels[-settings["asked"] :]
guess = vote(known=known, queries=asked, answers=labels[: settings["known"]], k=settings["k"])
# %% Accuracy
right = guess == labels[-settings["asked"] :]
accuracy = float(right.mean())
print(f"{accuracy:.3f}")
# %% Confused pairs
from collections import Counter

pairs = Counter((int(t), int(g)) for t, g in zip(labels[-settings["asked"] :], guess) if t != g)
# %% Most confused
worst = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:3]
print(worst)
# %% Mean images on disk
means = np.stack([pixels[labels == d].mean(axis=0) for d in range(10)])
np.save("means.npy", means)
# %% Read them again
sharpest = int(np.load("means.npy").max(axis=1).argmax())
# %% Report
print(f"accuracy {accuracy:.3f}, sharpest mean: {sharpest}")
