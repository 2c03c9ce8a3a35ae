"""Instances of pydantic models, validated again by the reader's own class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cenote_security.values import expect
from cenote_security.values.node import Foreign, Immutable, Json, Kind, Node, NodeParts
from cenote_security.values.shapes import Shape

if TYPE_CHECKING:
    from cenote_security.values.encoder import Encoder


def write(encoder: Encoder, value: Foreign, shape: Shape) -> Node:
    """Fields, extra fields and private attributes, with the names of those fields that were set explicitly."""
    state = dict(value.__dict__)
    fields = {name: state[name] for name in shape.fields if name in state}
    extra = dict(value.__pydantic_extra__ or {})
    private = dict(getattr(value, "__pydantic_private__", None) or {})
    names: Json = [list(fields), list(extra), list(private), sorted(value.__pydantic_fields_set__)]
    groups = (fields, extra, private)
    return ["model", [shape.reference, names], *(encoder.run(list(group.values())) for group in groups)]


def _build(parts: NodeParts) -> object:
    reference, names = expect.items(parts.meta, 2)
    shape = parts.source.shape(reference, "model")
    fields, extra, private, explicit = (expect.names(group) for group in expect.items(names, 4))
    if not set(fields) <= set(shape.fields) or set(extra) & set(shape.fields):
        expect.malformed(f"the fields of {shape.name} are {', '.join(shape.fields):.300}")
    model = _validate(
        shape.cls,
        dict(zip(fields, parts.runs[0], strict=True)),
        dict(zip(extra, parts.runs[1], strict=True)),
    )
    _set_private(model, dict(zip(private, parts.runs[2], strict=True)))
    known = set(shape.fields) | set(model.__pydantic_extra__ or {})
    object.__setattr__(model, "__pydantic_fields_set__", set(explicit) & known)
    return model


def _validate(cls: Foreign, fields: dict[str, object], extra: dict[str, object]) -> Foreign:
    """By field name, whatever aliases the model has. Nested models are instances already and stay as they are."""
    if extra and cls.model_config.get("extra") != "allow":
        expect.malformed(f"{cls.__qualname__} takes no extra fields")
    if getattr(cls, "__pydantic_root_model__", False):
        return cls.model_validate(fields.get("root"))
    return cls.__pydantic_validator__.validate_python({**fields, **extra}, by_name=True, by_alias=False)


def _set_private(model: Foreign, private: dict[str, object]) -> None:
    declared = type(model).__private_attributes__
    if not set(private) <= set(declared):
        expect.malformed("a private attribute is not declared")
    if private:
        model.__pydantic_private__.update(private)


KINDS: dict[str, Kind] = {
    "model": Immutable(build=_build, runs=3, walked=(0, 1, 2), whole=True),
}
