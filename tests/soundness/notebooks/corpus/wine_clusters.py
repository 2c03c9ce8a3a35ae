# %% Load
from sklearn.datasets import load_wine

wine = load_wine(as_frame=True)
data, cultivar = wine.data, wine.target
# %% Standardise
def standardise(table):
    return (table - table.mean()) / table.std()

scaled = standardise(data)
# %% Correlations
correlation = scaled.corr()
strongest = correlation.where(abs(correlation) < 0.999).abs().stack().idxmax()
print(sorted(strongest))
# %% Principal components by hand
import numpy as np

values, vectors = np.linalg.eigh(correlation.to_numpy())
share = values[::-1] / values.sum()
components = scaled.to_numpy() @ np.abs(vectors[:, ::-1][:, :2])
print(share[:3].round(3))
# %% Starting points
centres = scaled.to_numpy()[[0, 70, 140]].copy()
# %% Lloyd's steps, changing the centres in place
def nearest(points, middles):
    return ((points[:, None, :] - middles[None]) ** 2).sum(axis=2).argmin(axis=1)

points = scaled.to_numpy()
for _ in range(20):
    label = nearest(points, centres)
    for k in range(3):
        centres[k] = points[label == k].mean(axis=0)
# %% Agreement with the cultivars
import pandas as pd

table = pd.crosstab(cultivar, label)
purity = table.to_numpy().max(axis=0).sum() / len(label)
print(table.to_string())
# %% Spread of each cluster
spread = [float(np.linalg.norm(points[label == k] - centres[k], axis=1).mean()) for k in range(3)]
# %% Profile
profile = data.groupby(label).mean()[["alcohol", "proline", "hue"]].round(2)
# %% Report
print(f"purity {purity:.3f}, spread {max(spread):.2f}")
print(profile.to_string())
