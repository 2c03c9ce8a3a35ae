"""AST rules: early, readable feedback for a model, in words that say what to do instead.

They are advice and no wall: what keeps code in is the jail, which never counts on them.
"""

from cenote_security.rules.attributes import AttributeRule, DynamicAttributeRule, HiddenAttributeRule
from cenote_security.rules.checker import SecurityChecker
from cenote_security.rules.functions import FunctionRule
from cenote_security.rules.imports import AllowedImportsRule, ImportRule
from cenote_security.rules.installs import InstallRule
from cenote_security.rules.magics import MagicRule
from cenote_security.rules.presets import default_rules, strict_rules
from cenote_security.rules.regex import RegexRule
from cenote_security.rules.rule import Context, SecurityRule
from cenote_security.rules.session import CheckSession
from cenote_security.rules.violation import SecurityError, SecurityViolation

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
