# %% Next
import warnings
warnings.filterwarnings("ignore")
import numpy as np, pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split, cross_val_score, GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler, PolynomialFeatures
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.metrics import accuracy_score, roc_auc_score, confusion_matrix, classification_report
SEED = 7
# %% Next
bunch = load_breast_cancer(as_frame=True)
X, y = bunch.data, bunch.target
X.shape
# %% Next
X = X.iloc[:, :12].copy()
X["ratio"] = X["mean area"] / X["mean perimeter"]
# %% Next
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=SEED, stratify=y)
print(X_train.shape, X_test.shape)
# %% baseline
baseline = LogisticRegression(max_iter=5000)
baseline.fit(X_train, y_train)
print("baseline", accuracy_score(y_test, baseline.predict(X_test)))
# %% pipeline
pipe = Pipeline([("scale", StandardScaler()), ("clf", LogisticRegression(C=1.0, max_iter=1000))])
pipe.fit(X_train, y_train)
# %% Next
pred = pipe.predict(X_test)
proba = pipe.predict_proba(X_test)[:, 1]
print("acc %.3f auc %.3f" % (accuracy_score(y_test, pred), roc_auc_score(y_test, proba)))
# %% Next
cm = confusion_matrix(y_test, pred)
cm
# %% Next
print(classification_report(y_test, pred))
# %% cv
cv = StratifiedKFold(n_splits=3, shuffle=True, random_state=SEED)
scores = cross_val_score(pipe, X_train, y_train, cv=cv)
scores.round(3)
# %% tree
tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X_train, y_train)
tree.score(X_test, y_test)
# %% grid
grid = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [2, 3], "min_samples_leaf": [1, 5]}, cv=3)
grid.fit(X_train, y_train)
print(grid.best_params_, round(grid.best_score_, 3))
# %% cv results
res = pd.DataFrame(grid.cv_results_)[["params", "mean_test_score"]]
res
# %% forest
forest = RandomForestClassifier(n_estimators=20, random_state=SEED, n_jobs=2)
forest.fit(X_train, y_train)
print("forest", round(forest.score(X_test, y_test), 3))
# %% importances
imp = pd.Series(forest.feature_importances_, index=X.columns).sort_values(ascending=False)
imp.head(5).round(3)
# %% models
models = {"base": baseline, "pipe": pipe, "tree": tree, "forest": forest}
# %% compare
rows = []
for name, m in models.items():
    rows.append({"model": name, "acc": m.score(X_test, y_test)})
table = pd.DataFrame(rows).sort_values("acc", ascending=False)
print(table.to_string(index=False))
# %% column transformer
ct = ColumnTransformer([("num", StandardScaler(), ["mean radius", "mean texture"])], remainder="drop")
small = make_pipeline(ct, PolynomialFeatures(2), LogisticRegression(max_iter=2000))
small.fit(X_train, y_train)
small.score(X_test, y_test)
# %% threshold
def at_threshold(p, t=0.5):
    return (p >= t).astype(int)
# %% Next
thresholds = [0.3, 0.5, 0.7]
acc = [accuracy_score(y_test, at_threshold(proba, t)) for t in thresholds]
list(zip(thresholds, np.round(acc, 3)))
# %% errors
wrong = X_test[pred != y_test]
wrong[["mean radius", "ratio"]].describe().round(2)
# %% done
best = table.iloc[0]["model"]
print("best:", best)
