"""What can be chosen of the lens `attention`."""

from pydantic import Field

from statewise.specs import Spec


class AttentionSettings(Spec):
    window: int = Field(40, ge=2, le=256, description="tokens of a map, or of the row that is drawn")
    rows: int = Field(8, ge=1, description="windows, or rows, that heads are described on")
    layers: tuple[int, ...] = Field(
        (), description="layers that are drawn, from 0; default: as many as fit, of alignments the mean"
    )
    heads: tuple[int, ...] = Field(
        (), description="heads that are drawn, from 0; default: as many as fit, of alignments the mean"
    )
    queries: tuple[int, ...] = Field((), description="tokens whose looks are drawn, from 0; default: all")
    maps: int = Field(4, ge=1, le=64, description="maps that are drawn at most")
    pairs: int = Field(4, ge=1, le=64, description="pairs whose alignment is drawn; translations")
    judged: int = Field(64, ge=1, description="pairs that are judged; translations")
