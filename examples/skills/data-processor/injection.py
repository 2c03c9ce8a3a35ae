"""What the skill adds to the namespace when it is activated."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, pstdev

from cenote.runtime import Function, Type, Variable

CONFIG = {"threshold": 2.0, "max_items": 1000}


@dataclass
class AnalysisResult:
    """Statistics of one list of numbers."""

    count: int
    mean: float
    outliers: list[float]
    mean_without_outliers: float


def analyze_data(data: list[float]) -> AnalysisResult:
    """Mean and outliers of a list of numbers"""
    if len(data) > CONFIG["max_items"]:
        raise ValueError(f"at most {CONFIG['max_items']} items, not {len(data)}")
    limit = CONFIG["threshold"] * pstdev(data)
    outliers = [x for x in data if abs(x - mean(data)) > limit]
    rest = [x for x in data if x not in outliers]
    return AnalysisResult(len(data), round(mean(data), 2), outliers, round(mean(rest), 2))


__exports__ = [
    Function(analyze_data, description="Analyze data statistically"),
    Variable("CONFIG", value=CONFIG, description="Analysis configuration"),
    Type(AnalysisResult, description="Result structure"),
]
