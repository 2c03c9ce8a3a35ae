"""A session of thirty cells with scikit-learn, as a person writes it."""

from __future__ import annotations

from typing import Final

CELLS: Final = (
    "import numpy as np\nimport pandas as pd",
    "from sklearn.datasets import load_breast_cancer\ndata = load_breast_cancer(as_frame=True)\ndf = data.frame",
    "df.head()",
    "df.describe()",
    "df['target'].value_counts()",
    "df['ratio'] = df['mean area'] / df['mean perimeter']",
    "corr = df.corr()\ncorr['target'].sort_values().head()",
    "from sklearn.model_selection import train_test_split\nX, y = df.drop(columns='target'), df['target']",
    "X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)",
    "X_train.shape, X_test.shape",
    "from sklearn.preprocessing import StandardScaler\nscaler = StandardScaler().fit(X_train)",
    "Z_train, Z_test = scaler.transform(X_train), scaler.transform(X_test)",
    "from sklearn.linear_model import LogisticRegression\n"
    "model = LogisticRegression(max_iter=500).fit(Z_train, y_train)",
    "model.score(Z_test, y_test)",
    "from sklearn.metrics import classification_report, confusion_matrix\npredicted = model.predict(Z_test)",
    "print(classification_report(y_test, predicted))",
    "confusion_matrix(y_test, predicted)",
    "weights = pd.Series(model.coef_[0], index=X.columns).sort_values()\nweights.head()",
    "from sklearn.tree import DecisionTreeClassifier\ntree = DecisionTreeClassifier(max_depth=4, random_state=0)",
    "tree.fit(X_train, y_train)\ntree.score(X_test, y_test)",
    "from sklearn.ensemble import RandomForestClassifier\n"
    "forest = RandomForestClassifier(n_estimators=30, random_state=0)",
    "forest.fit(X_train, y_train)",
    "forest.score(X_test, y_test)",
    "importance = pd.Series(forest.feature_importances_, index=X.columns).nlargest(5)\nimportance",
    "from sklearn.decomposition import PCA\npca = PCA(n_components=2).fit(Z_train)\nP = pca.transform(Z_train)",
    "pca.explained_variance_ratio_",
    "from sklearn.cluster import KMeans\nclusters = KMeans(n_clusters=2, n_init=3, random_state=0).fit_predict(P)",
    "pd.crosstab(clusters, y_train)",
    "results = {'logistic': model.score(Z_test, y_test), 'forest': forest.score(X_test, y_test)}",
    "best = max(results, key=results.get)\nprint(best, results[best])",
)
