"""How `match` is read: a class pattern reads attributes without an Attribute node, a mapping pattern reads items."""

from __future__ import annotations

import ast

from cenote_security.rules.reading.expressions import quiet
from cenote_security.rules.reading.members import access, elements, item
from cenote_security.rules.reading.reader import Reader
from cenote_security.rules.reading.value import Const, Value, items


def read_match(reader: Reader, node: ast.Match) -> None:
    subject = reader.visit(node.subject)
    for case in node.cases:
        before = reader.enter()
        match_pattern(reader, case.pattern, subject)
        if case.guard is not None:
            reader.visit(case.guard)
        reader.block(case.body)
        reader.leave(before)


def match_pattern(reader: Reader, pattern: ast.pattern, subject: Value) -> None:
    """Read the pattern, which takes parts of the subject."""
    match pattern:
        case ast.MatchValue():
            quiet(reader, pattern.value)
        case ast.MatchSingleton():
            pass
        case ast.MatchAs():
            _match_as(reader, pattern, subject)
        case ast.MatchOr():
            for alternative in pattern.patterns:
                match_pattern(reader, alternative, subject)
        case ast.MatchStar():
            if pattern.name:
                reader.bind(pattern.name, items((elements(subject),)))
        case ast.MatchSequence():
            for part in pattern.patterns:
                match_pattern(reader, part, elements(subject))
        case ast.MatchMapping():
            _match_mapping(reader, pattern, subject)
        case ast.MatchClass():
            _match_class(reader, pattern, subject)
        case _:
            reader.visit(pattern)  # a pattern of a later Python: no handler has it, and that is reported


def _match_as(reader: Reader, pattern: ast.MatchAs, subject: Value) -> None:
    if pattern.pattern is not None:
        match_pattern(reader, pattern.pattern, subject)
    if pattern.name:
        reader.bind(pattern.name, subject)


def _match_mapping(reader: Reader, pattern: ast.MatchMapping, subject: Value) -> None:
    for key, part in zip(pattern.keys, pattern.patterns, strict=True):
        named = quiet(reader, key)
        match_pattern(reader, part, item(reader, key, subject, named if type(named) is Const else None))
    if pattern.rest:
        reader.bind(pattern.rest, subject)


def _match_class(reader: Reader, pattern: ast.MatchClass, subject: Value) -> None:
    reader.visit(pattern.cls)
    for part in pattern.patterns:
        match_pattern(reader, part, subject)
    for name, part in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
        match_pattern(reader, part, access(reader, part, subject, name, token=name))
