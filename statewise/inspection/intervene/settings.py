"""What can be chosen of the lens `intervene`."""

from pydantic import Field

from statewise.specs import Spec


class InterveneSettings(Spec):
    address: str | None = Field(
        None, description="layers.0, layers.0.c_BD, one unit layers.0.c_BD[D=3]; or an observed name, which is silenced"
    )
    other: str | None = Field(None, description="a text (or a file) whose state is carried into this one")
    places: int = Field(8, ge=2, le=256, description="time steps of the text, or rows, at which something is touched")
    ahead: int | None = Field(
        None, ge=4, le=1024, description="tokens that are read after that; default: 48, fewer where the text is short"
    )
    units: int = Field(64, ge=1, description="units of one leaf that are set to 0 one by one")
    tokens: int = Field(60, ge=0, description="tokens that are written after an act")
    temperature: float = Field(0.0, ge=0, description="of what is written; 0: always the likeliest")
    seed: int = Field(0, ge=0, description="of what is written, where there is chance in it")
