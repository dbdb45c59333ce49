"""What a model is trained to make small, where its outputs are classes."""

from typing import Literal

from pydantic import Field

from statewise.specs.base import Spec


class CategoricalSpec(Spec):
    kind: Literal["categorical"] = "categorical"
    smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target that is spread over all classes")
    weights: Literal["none", "balanced"] = Field("none", description="balanced: all classes count alike, however rare")


class CRFSpec(Spec):
    """A whole sequence of tags is one outcome: each is likely or not beside its neighbours."""

    kind: Literal["crf"] = "crf"
    constraint: Literal["auto", "none"] = Field(
        "auto", description="auto: where tags are O, B-… and I-…, I-… only follows its own kind"
    )
