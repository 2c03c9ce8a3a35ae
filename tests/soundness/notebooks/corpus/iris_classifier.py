# %% Load
from sklearn.datasets import load_iris
import pandas as pd

iris = load_iris(as_frame=True)
frame = iris.frame.rename(columns=lambda name: name.replace(" (cm)", "").replace(" ", "_"))
species = dict(enumerate(iris.target_names))
# %% Describe
summary = frame.groupby("target").mean().rename(index=species)
print(summary.round(2))
# %% A derived feature, in place
def area(width, length):
    return width * length

frame["petal_area"] = area(frame["petal_width"], frame["petal_length"])
# %% Split
import numpy as np

rng = np.random.default_rng(7)
order = rng.permutation(len(frame))
train, test = frame.iloc[order[:100]], frame.iloc[order[100:]]
# %% Features
features = ["sepal_length", "sepal_width", "petal_area"]
# %% Fit
from sklearn.tree import DecisionTreeClassifier

tree = DecisionTreeClassifier(max_depth=3, random_state=0)
tree.fit(train[features], train["target"])
# %% Score
def accuracy(model, rows):
    return float((model.predict(rows[features]) == rows["target"]).mean())

scores = {"train": accuracy(tree, train), "test": accuracy(tree, test)}
print(scores)
# %% Importance
importance = dict(zip(features, tree.feature_importances_.round(3).tolist()))
# %% Confusion
confusion = pd.crosstab(test["target"].map(species), pd.Series(tree.predict(test[features]), index=test.index).map(species))
print(confusion.to_string())
# %% Report
report = f"test accuracy {scores['test']:.3f}; most important: {max(importance, key=importance.get)}"
print(report)
