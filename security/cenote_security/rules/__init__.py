"""AST rules: early, readable feedback for a model, in words that say what to do instead.

They are advice and no wall: what keeps code in is the jail, which never counts on them.
"""

from cenote_security.rules.builtin_rules import (
    AllowedImportsRule,
    AttributeRule,
    DynamicAttributeRule,
    FunctionRule,
    HiddenAttributeRule,
    ImportRule,
    InstallRule,
    MagicRule,
    RegexRule,
)
from cenote_security.rules.checker import CheckSession, SecurityChecker
from cenote_security.rules.findings import SecurityError, SecurityViolation
from cenote_security.rules.presets import default_rules, strict_rules
from cenote_security.rules.rule import Context, SecurityRule

__all__ = [
    "AllowedImportsRule",
    "AttributeRule",
    "CheckSession",
    "Context",
    "DynamicAttributeRule",
    "FunctionRule",
    "HiddenAttributeRule",
    "ImportRule",
    "InstallRule",
    "MagicRule",
    "RegexRule",
    "SecurityChecker",
    "SecurityError",
    "SecurityRule",
    "SecurityViolation",
    "default_rules",
    "strict_rules",
]
