"""What every spec shares: frozen, closed to unknown keys, finite numbers only."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)
