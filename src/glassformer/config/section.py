"""What all sections of the configuration are."""

from typing import Any

from pydantic import BaseModel, ConfigDict

Settings = dict[str, Any]  # nested, partial: {"model": {"layers": 4}}
RULES = ConfigDict(extra="forbid", allow_inf_nan=False)


class Section(BaseModel):
    model_config = RULES
