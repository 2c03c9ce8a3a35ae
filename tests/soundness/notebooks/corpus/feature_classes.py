# %% Next
import numpy as np
import pandas as pd
from dataclasses import dataclass, field
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge, Lasso
from sklearn.model_selection import KFold, cross_val_score, train_test_split
from sklearn.metrics import mean_absolute_error
from sklearn.pipeline import Pipeline
# %% Next
data = load_diabetes(as_frame=True)
df = data.frame.copy()
TARGET = "target"
df.head(3)
# %% config
@dataclass
class Config:
    test_size: float = 0.25
    seed: int = 3
    alpha: float = 0.5
    drop: list = field(default_factory=list)

cfg = Config()
# %% transformers
class Clipper(BaseEstimator, TransformerMixin):
    def __init__(self, low=0.01, high=0.99):
        self.low = low
        self.high = high

    def fit(self, X, y=None):
        self.bounds_ = X.quantile([self.low, self.high])
        return self

    def transform(self, X):
        return X.clip(self.bounds_.iloc[0], self.bounds_.iloc[1], axis=1)


class Interactions(BaseEstimator, TransformerMixin):
    def __init__(self, pairs=()):
        self.pairs = pairs

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        X = X.copy()
        for a, b in self.pairs:
            X[f"{a}*{b}"] = X[a] * X[b]
        return X
# %% helpers
def age_group(value):
    if value < -0.04:
        return "young"
    if value < 0.04:
        return "middle"
    return "old"

def report(name, value):
    print(f"{name:>12}: {value:.2f}")
# %% Next
df["group"] = df["age"].map(age_group)
df["group"].value_counts()
# %% Next
df.groupby("group")[[TARGET, "bmi"]].mean().round(2)
# %% Next
num = df.drop(columns=["group", *cfg.drop])
X, y = num.drop(columns=TARGET), num[TARGET]
# %% Next
train_X, test_X, train_y, test_y = train_test_split(X, y, test_size=cfg.test_size, random_state=cfg.seed)
# %% Next
clip = Clipper().fit(train_X)
clipped = clip.transform(train_X)
print((clipped != train_X).sum().sum())
# %% Next
inter = Interactions(pairs=[("bmi", "bp"), ("s1", "s2")])
wide = inter.fit_transform(clipped)
wide.shape
# %% Next
model = Ridge(alpha=cfg.alpha).fit(wide, train_y)
pred = model.predict(inter.transform(clip.transform(test_X)))
report("ridge", mean_absolute_error(test_y, pred))
# %% Next
full = Pipeline([("clip", Clipper(0.02, 0.98)), ("inter", Interactions([("bmi", "s5")])), ("model", Lasso(alpha=0.1))])
full.fit(train_X, train_y)
report("lasso", mean_absolute_error(test_y, full.predict(test_X)))
# %% Next
cv = KFold(4, shuffle=True, random_state=cfg.seed)
scores = -cross_val_score(full, X, y, cv=cv, scoring="neg_mean_absolute_error")
print(scores.round(2))
# %% Next
results = {}
for alpha in (0.01, 0.1, 1.0):
    results[alpha] = float(mean_absolute_error(test_y, Ridge(alpha=alpha).fit(train_X, train_y).predict(test_X)))
results
# %% Next
best_alpha = min(results, key=results.get)
report("best alpha", best_alpha)
# %% Next
class Tracker:
    history = []

    def add(self, name, score):
        self.history.append((name, round(score, 3)))
        return self

tracker = Tracker()
# %% Next
tracker.add("ridge", mean_absolute_error(test_y, pred)).add("lasso", scores.mean())
tracker.history
# %% Next
coefs = pd.Series(model.coef_, index=wide.columns)
coefs.abs().sort_values().tail(3).round(1)
# %% Next
residuals = test_y - pred
residuals.groupby(df.loc[test_y.index, "group"]).agg(["mean", "std"]).round(1)
# %% Next
report("final", min(tracker.history, key=lambda t: t[1])[1])
