# %% Load
from sklearn.datasets import load_diabetes

table = load_diabetes(as_frame=True, scaled=False).frame
# %% A class of our own
import numpy as np

class Ridge:
    penalty = 1.0

    def __init__(self, names):
        self.names = list(names)

    def fit(self, rows):
        x = self.design(rows)
        y = rows["target"].to_numpy()
        self.weights = np.linalg.solve(x.T @ x + self.penalty * np.eye(x.shape[1]), x.T @ y)
        return self

    def design(self, rows):
        x = rows[self.names].to_numpy(dtype=float)
        return np.column_stack([np.ones(len(x)), (x - x.mean(axis=0)) / x.std(axis=0)])

    def predict(self, rows):
        return self.design(rows) @ self.weights
# %% Two models
small = Ridge(["bmi", "bp"])
large = Ridge(["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"])
# %% Split
train, test = table.iloc[:330], table.iloc[330:]
# %% Fit both
for model in (small, large):
    model.fit(train)
# %% Errors
def error(model, rows):
    return float(np.sqrt(((model.predict(rows) - rows["target"]) ** 2).mean()))

errors = {"small": error(small, test), "large": error(large, test)}
print({name: round(value, 1) for name, value in errors.items()})
# %% The penalty is a property of the class
Ridge.penalty = 10.0
large.fit(train)
shrunk = error(large, test)
# %% Residuals
residuals = (test["target"] - large.predict(test)).round(1)
worst = residuals.abs().nlargest(3).index.tolist()
# %% Groups
by_sex = residuals.groupby(test["sex"]).agg(["mean", "std"]).round(2)
print(by_sex.to_string())
# %% Report
print(f"{errors['small']:.1f} -> {errors['large']:.1f} -> {shrunk:.1f}; worst {worst}")
