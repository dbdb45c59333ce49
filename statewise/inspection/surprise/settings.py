"""What can be chosen of the lens `surprise`."""

from pydantic import Field

from statewise.specs import Spec


class SurpriseSettings(Spec):
    against: str | None = Field(None, description="another run, to be compared on the same text")
    shown: int = Field(1200, ge=1, le=5000, description="tokens of the text that are shown in colour")
    worst: int = Field(12, ge=1, le=200, description="tokens that are listed")
