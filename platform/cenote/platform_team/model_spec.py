"""A model that a platform is to ask, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cenote_proto.scalars import make, utf8_text, utf8_texts
from cenote_proto.v1 import team_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as data.

    name: as its server knows it; without a `base_url` a LiteLLM name, such as `anthropic/claude-sonnet-4-5`.
    base_url: of a server of OpenAI's chat completions, which the platform's operator has allowed.
    secret: which of the team's secrets is the key. parameters: such as `{"temperature": 0.2}`.
    script: answers in order, of a model for tests that asks nobody.
    """

    name: str = ""
    base_url: str = ""
    secret: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    script: Sequence[str] = ()

    def message(self) -> team_pb2.TeamModel:
        model = make(team_pb2.TeamModel, name=self.name, base_url=self.base_url, secret=self.secret)
        model.parameters = utf8_text(json.dumps(dict(self.parameters))) if self.parameters else ""
        model.script.extend(utf8_texts(self.script))
        if self.script:
            model.kind = team_pb2.TeamModel.SCRIPTED
        elif self.base_url:
            model.kind = team_pb2.TeamModel.OPENAI
        return model
