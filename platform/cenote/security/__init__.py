"""Rules that check a cell before it runs, and the policy of the jail that it runs in.

Rules give a model early, readable feedback; the wall is the kernel, and it does not count on them.
"""

from cenote_security.network import Allow, Secret
from cenote_security.policy import Mount, SandboxPolicy
from cenote_security.printable import printable
from cenote_security.rules import (
    AllowedImportsRule,
    AttributeRule,
    CheckSession,
    Context,
    DynamicAttributeRule,
    FunctionRule,
    HiddenAttributeRule,
    ImportRule,
    InstallRule,
    MagicRule,
    RegexRule,
    SecurityChecker,
    SecurityError,
    SecurityRule,
    SecurityViolation,
    default_rules,
    strict_rules,
)

__all__ = [
    "Allow",
    "AllowedImportsRule",
    "AttributeRule",
    "CheckSession",
    "Context",
    "default_rules",
    "DynamicAttributeRule",
    "FunctionRule",
    "HiddenAttributeRule",
    "ImportRule",
    "InstallRule",
    "MagicRule",
    "Mount",
    "printable",
    "RegexRule",
    "SandboxPolicy",
    "Secret",
    "SecurityChecker",
    "SecurityError",
    "SecurityRule",
    "SecurityViolation",
    "strict_rules",
]
