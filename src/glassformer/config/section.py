"""What all sections of the configuration are."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

Settings = dict[str, Any]  # nested, partial: {"model": {"layers": 4}}
RULES = ConfigDict(extra="forbid", allow_inf_nan=False)


class Section(BaseModel):
    """Settings, checked when they are given; its repr shows those that are not as they come."""

    model_config = RULES

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.get_default(call_default_factory=True):
                yield name, value
