"""What can be chosen of the lens `gradient`."""

from pydantic import Field

from statewise.specs import Spec

SHORTEST = 4  # tokens that a gradient can be followed through


class GradientSettings(Spec):
    window: int = Field(64, ge=SHORTEST, description="tokens that gradients are followed through")
    rows: int | None = Field(
        None, ge=1, description="windows of a text, or rows, that are read; default: 4, or 12 rows"
    )
    queries: int = Field(16, ge=1, description="time steps, or answers of a row, whose loss is followed back")
    threshold: float = Field(0.01, gt=0, lt=1, description="share of the largest below which a memory counts as gone")
    context: int = Field(256, ge=2, description="longest context whose worth is measured")
    targets: int = Field(256, ge=2, description="tokens that this is measured on")
    largest: int = Field(1024, ge=1, description="numbers in a state up to which its whole Jacobian is made")
    steps: int = Field(32, ge=1, description="steps over which Jacobians are multiplied")
    keys: int = Field(32, ge=2, description="keys that the softmax chooses from")
