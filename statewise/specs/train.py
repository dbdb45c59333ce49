"""How a model is trained: truncation, optimiser, schedule, and what is kept on the way."""

from typing import Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Spec
from statewise.specs.truncation import FixedTruncation, FullTruncation, TruncationSpec


class TrainSpec(Spec):
    steps: int = Field(1000, ge=0, description="optimiser steps")
    seconds: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="end after so many seconds of training, not after `steps`: what is counted in steps (warm-up, "
        "rate, evaluations, saves) keeps its share of them",
    )
    batch: int = Field(32, ge=1, description="rows read side by side, over all processes together")
    window: int | None = Field(
        None, ge=1, description="tokens per row that one step reads; default: `truncation`, so that it tiles"
    )
    truncation: TruncationSpec = Field(FixedTruncation(), description="full, fixed:N (or N), random:N, unbiased:N")
    accumulate: int = Field(1, ge=1, description="split a batch into so many parts, one gradient")

    optimizer: Literal["adamw", "muon", "sgd", "asgd"] = Field(
        "adamw",
        description="muon: for the matrices inside the model, adamw for the rest; "
        "asgd: SGD that starts averaging when validation stops improving (NT-ASGD)",
    )
    lr: float = Field(4e-3, gt=0, description="learning rate: the highest of the schedule")
    weight_decay: float = Field(0.01, ge=0, description="weight decay of matrices; biases and gains have none")
    betas: tuple[float, float] = Field((0.9, 0.99), description="adamw")
    matrix_lr: float = Field(0.02, gt=0, description="muon: the rate of its matrices where that of the rest is `lr`")
    matrix_momentum: float = Field(0.95, ge=0, lt=1, description="muon")
    matrix_decay: float = Field(0.0, ge=0, description="muon: weight decay of its matrices")
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd")
    trigger: int = Field(5, ge=1, description="asgd: evaluations without improvement before averaging starts")
    average: float | None = Field(
        None, gt=0, lt=1, description="decay of a moving average of the weights (0.999): it is what is judged and kept"
    )
    schedule: Literal["constant", "cosine", "linear", "plateau"] = Field(
        "cosine", description="how the learning rate falls after the warm-up"
    )
    warmup: int = Field(50, ge=0, description="steps over which the rate rises to `lr`")
    final: float = Field(0.05, ge=0, le=1, description="cosine, linear: the last rate, as a share of `lr`")
    decay: float = Field(0.5, gt=0, lt=1, description="plateau: factor on the rate")
    wait: int = Field(2, ge=1, description="plateau: evaluations without improvement before the rate falls")
    clip: float | None = Field(1.0, gt=0, description="largest global gradient norm")

    device: str = Field("auto", description="auto, cpu, cuda, cuda:1")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="auto: float32 on CPU, bfloat16 autocast on a GPU that has it"
    )
    deterministic: bool = Field(False, description="refuse nondeterministic operations")
    graph: Literal["auto", "never", "always"] = Field(
        "auto",
        description="a GPU's steps as one captured CUDA graph; auto: where that can be done; "
        "always: an error where it cannot",
    )

    evaluate_every: int = Field(250, ge=1, description="steps between two evaluations on the validation data")
    evaluate_tokens: int | None = Field(
        250_000, ge=1, description="most validation tokens read at each evaluation; none: all of them"
    )
    judge: str | None = Field(
        None, description="the validation metric that decides which weights are kept; default: the task's own"
    )
    save_every: int = Field(250, ge=1, description="steps between two checkpoints")
    log_every: int = Field(10, ge=1, description="steps between two lines of metrics.jsonl")
    keep: int = Field(2, ge=1, description="checkpoints kept")
    patience: int | None = Field(None, ge=1, description="evaluations without improvement before an early stop")

    @model_validator(mode="after")
    def _seconds_end_differently_each_time(self) -> Self:
        if self.seconds is not None and self.deterministic:
            raise ValueError(
                "seconds cannot be deterministic: where a run ends depends on the machine; set steps alone"
            )
        if self.seconds is not None and self.steps == 0:
            raise ValueError("seconds needs steps above 0: they are what warm-up and evaluations are measured by")
        return self

    def window_tokens(self) -> int:
        """Tokens per row that one step reads."""
        match self.truncation:
            case _ if self.window is not None:
                return self.window
            case FixedTruncation(length=length):
                return length
            case FullTruncation():
                return 256
            case other:
                return 4 * other.length
