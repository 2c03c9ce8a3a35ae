"""Rules of the CaveAgent library: Cenote's, which take what its rules take."""

from cenote.security import (
    AttributeRule,
    FunctionRule,
    ImportRule,
    RegexRule,
    SecurityChecker,
    SecurityError,
    SecurityRule,
    SecurityViolation,
)

__all__ = [
    "AttributeRule",
    "FunctionRule",
    "ImportRule",
    "RegexRule",
    "SecurityChecker",
    "SecurityError",
    "SecurityRule",
    "SecurityViolation",
]
