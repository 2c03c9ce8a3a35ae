"""Rules about attributes: those that are named, and all that Python or a module's author meant to be hidden."""

from __future__ import annotations

from collections.abc import Iterable

from cenote_security.rules.names import names_of
from cenote_security.rules.rule import UseRule
from cenote_security.rules.use import Use, Watch


class AttributeRule(UseRule):
    """Forbids reading, writing or deleting attributes of these names, of whatever object.

    By any road: `x.name`, `getattr` and its kin, class patterns, format strings, `operator.attrgetter`. A string that
    spells a forbidden dunder name counts too, unless it is only compared, printed or looked up.
    """

    default_remedy = "use the public methods of the object"

    def __init__(
        self,
        forbidden_attributes: Iterable[str],
        description: str | None = None,
        *,
        remedy: str | None = None,
    ) -> None:
        self.forbidden_attributes = names_of(forbidden_attributes, '["__globals__", "password"]')
        self.description = description
        super().__init__(Watch(attributes=self.forbidden_attributes), remedy)

    def __repr__(self) -> str:
        return f"{self.name}({sorted(self.forbidden_attributes)})"

    def judge(self, use: Use) -> str | None:
        if use.kind != "attribute" or use.name not in self.forbidden_attributes:
            return None
        why = f" ({self.description})" if self.description else ""
        return f"attribute {use.name} is not allowed here{why}"


class HiddenAttributeRule(UseRule):
    """Forbids dunder attributes other than the allowed ones, and private members of modules (`random._os`)."""

    default_remedy = "use the public methods of the object"

    def __init__(self, allowed_attributes: Iterable[str] = (), *, remedy: str | None = None) -> None:
        self.allowed_attributes = names_of(allowed_attributes, '["__len__"]')
        super().__init__(Watch(hidden=True), remedy)

    def judge(self, use: Use) -> str | None:
        if use.kind != "attribute" or use.name in self.allowed_attributes:
            return None
        if use.name.startswith("__") and use.name.endswith("__"):
            return f"attribute {use.name} is not allowed here"
        if use.owner and use.name.startswith("_"):
            return f"{use.name} is private to module {use.owner}"
        return None


class DynamicAttributeRule(UseRule):
    """Forbids `getattr` and its kin where the name of the attribute cannot be told from the code."""

    default_remedy = "name the attribute in the code, e.g. loop over a literal list of names"

    def __init__(self, *, remedy: str | None = None) -> None:
        super().__init__(Watch(), remedy)

    def judge(self, use: Use) -> str | None:
        if use.kind != "unreadable member":
            return None
        return "which attribute is used cannot be told from the code"
