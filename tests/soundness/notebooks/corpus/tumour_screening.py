# %% Load
from sklearn.datasets import load_breast_cancer

cells = load_breast_cancer(as_frame=True)
frame = cells.frame.copy()
# %% Pick columns
columns = [name for name in cells.feature_names if name.startswith("mean")]
# %% Outliers, clipped in place
def clip(table, column, quantile=0.99):
    table[column] = table[column].clip(upper=table[column].quantile(quantile))

for column in columns:
    clip(frame, column)
# %% Folds
import random

random.seed(11)
fold = [random.randrange(4) for _ in range(len(frame))]
# %% A model per fold
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
import numpy as np

models = []
for held in range(4):
    rows = frame[[f != held for f in fold]]
    models.append(make_pipeline(StandardScaler(), LogisticRegression(C=0.5)).fit(rows[columns], rows["target"]))
# %% Predictions out of fold
chance = np.empty(len(frame))
for held, model in enumerate(models):
    mine = np.array(fold) == held
    chance[mine] = model.predict_proba(frame.loc[mine, columns])[:, 1]
# %% A threshold
threshold = 0.5
# %% Rates
truth = frame["target"].to_numpy()
missed = int(((chance >= threshold) & (truth == 0)).sum())
alarms = int(((chance < threshold) & (truth == 1)).sum())
print(missed, alarms)
# %% Calibration
edges = np.linspace(0, 1, 6)
bins = np.digitize(chance, edges[1:-1])
calibration = {int(b): round(float(truth[bins == b].mean()), 2) for b in np.unique(bins)}
# %% Weights
weights = np.mean([model[-1].coef_[0] for model in models], axis=0)
heaviest = [columns[i] for i in np.argsort(-abs(weights))[:3]]
# %% Report
print(f"missed {missed}, false alarms {alarms}, looks at {', '.join(heaviest)}; calibration {calibration}")
