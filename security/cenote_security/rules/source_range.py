"""Exact places in the source, for what rules found. Loaded with asttokens only when something was found."""

from __future__ import annotations

import ast
import tokenize
from dataclasses import dataclass
from functools import cached_property

import asttokens
from asttokens.util import Token

LONGEST_SNIPPET = 80
"""Characters of code that a message quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """A range of the code. Lines count from 1, columns in characters from 0, the end is exclusive."""

    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return "the code"
        if self.line == self.end_line:
            return f"line {self.line}, columns {self.column}-{self.end_column}"
        return f"lines {self.line}-{self.end_line}"


class Locator:
    """Finds nodes of one cell in its source."""

    def __init__(self, code: str, tree: ast.Module) -> None:
        self._code = code
        self._tree = tree
        self._lines = code.split("\n")
        self._text = asttokens.ASTText(code, tree=tree)

    def place(self, node: ast.AST, token: str = "") -> SourceRange:
        """Where the node is; of a node over several lines, only the given word in it, if it is there."""
        (line, column), (end_line, end_column) = self._text.get_text_positions(node, padded=False)
        if token and (line != end_line or not isinstance(node, ast.Attribute)):
            found = self._word(node, token)
            if found is not None:
                (line, column), (end_line, end_column) = found.start, found.end
        return SourceRange(line=line, column=column, end_line=end_line, end_column=end_column)

    def _word(self, node: ast.AST, name: str) -> Token | None:
        try:
            words = [token for token in self._around(node) if token.type == tokenize.NAME]
        except (tokenize.TokenError, SyntaxError):  # the tokenizer in Python is stricter than the one in C
            return None
        return next((word for word in reversed(words) if word.string == name), None)

    def _around(self, node: ast.AST) -> list[Token]:
        """The tokens of the node; for the pattern in `C(name=pattern)` those before it, which name it."""
        if not isinstance(node, ast.pattern):
            return list(self._tokens.get_tokens(node))
        (start, _) = self._tokens.get_text_range(node)
        return [token for token in self._tokens.tokens if token.startpos < start]

    @cached_property
    def _tokens(self) -> asttokens.ASTTokens:
        return asttokens.ASTTokens(self._code, tree=self._tree)

    def snippet(self, place: SourceRange) -> str:
        """The code at the place on one line, shortened in the middle."""
        if not place.line:
            return ""
        lines = self._lines[place.line - 1 : place.end_line]
        lines[-1] = lines[-1][: place.end_column]
        lines[0] = lines[0][place.column :]
        text = " ".join(" ".join(lines).split())
        text = "".join(character if character.isprintable() else "?" for character in text)
        half = LONGEST_SNIPPET // 2
        return text if len(text) <= LONGEST_SNIPPET else f"{text[:half]} ... {text[-half:]}"
