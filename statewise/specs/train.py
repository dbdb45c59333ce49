"""How a model is trained: truncation of gradients, forcing, optimiser, schedule, and what is saved on the way."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from statewise.specs.base import Spec


class FullTruncation(Spec):
    """No cut: gradients flow through the whole window."""

    kind: Literal["full"] = "full"


class FixedTruncation(Spec):
    """A cut every `length` tokens; the state is carried across it, detached."""

    kind: Literal["fixed"] = "fixed"
    length: int = Field(64, ge=1, description="tokens between two cuts")


class RandomTruncation(Spec):
    """Segments of random length, `length` tokens in the mean; the state is carried, detached."""

    kind: Literal["random"] = "random"
    length: int = Field(64, ge=1, description="tokens between two cuts")


class UnbiasedTruncation(Spec):
    """Every `length` tokens the gradient passes with probability `keep`, then weighted by 1 / keep."""

    kind: Literal["unbiased"] = "unbiased"
    length: int = Field(16, ge=1, description="tokens between two places where it may be cut")
    keep: float = Field(0.5, gt=0, le=1, description="probability that the gradient passes")


def _read_truncation(value: Any) -> Any:
    """`64` is a fixed length, `"random"` a kind, `"random:32"` a kind with its length; fixed by default."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return {"kind": "fixed", "length": value}
    if isinstance(value, str):
        kind, colon, length = value.partition(":")
        return {"kind": kind, "length": length} if colon else {"kind": kind}
    return {"kind": "fixed", **value} if isinstance(value, dict) else value


TruncationSpec = Annotated[
    Annotated[FullTruncation | FixedTruncation | RandomTruncation | UnbiasedTruncation, Field(discriminator="kind")],
    BeforeValidator(_read_truncation),
]


class TeacherForcing(Spec):
    """The truth, at every step: parallel over time where the model is."""

    kind: Literal["teacher"] = "teacher"


class FreeRunning(Spec):
    """After the first symbol, only the model's own outputs."""

    kind: Literal["free"] = "free"
    choice: Literal["sample", "best"] = Field("sample", description="what is fed back: a draw, or the likeliest")


class ScheduledSampling(Spec):
    """For every symbol the truth with a probability that falls from `start` to `end` (Bengio et al. 2015)."""

    kind: Literal["scheduled"] = "scheduled"
    schedule: Literal["constant", "linear", "exponential", "inverse_sigmoid"] = "linear"
    start: float = Field(1.0, ge=0, le=1, description="probability of the truth before the first step")
    end: float = Field(0.0, ge=0, le=1, description="the probability that the schedule goes towards")
    steps: int = Field(1000, ge=1, description="linear: steps from `start` to `end`")
    k: float = Field(
        0.999, gt=0, description="exponential: factor a step, below 1; inverse_sigmoid: k / (k + exp(step / k)), from 1"
    )
    choice: Literal["sample", "best"] = Field("sample", description="what is fed back: a draw, or the likeliest")

    def model_post_init(self, _: Any) -> None:
        if self.schedule == "exponential" and self.k >= 1:
            raise ValueError(f"k = {self.k:g} is not below 1, so an exponential schedule never falls; try k = 0.999")
        if self.schedule == "inverse_sigmoid" and self.k < 1:
            raise ValueError(f"k = {self.k:g} is below 1, where an inverse sigmoid does not begin near 1; try k = 100")


def _read_forcing(value: Any) -> Any:
    """`"teacher"`, `"free"`, `"scheduled"`, or a schedule by its name, `"inverse_sigmoid:200"` with its k or steps."""
    if not isinstance(value, str):
        return {"kind": "scheduled", **value} if isinstance(value, dict) else value
    name, colon, number = value.partition(":")
    if name in ("teacher", "free", "scheduled") and not colon:
        return {"kind": name}
    number_is = {"linear": "steps", "constant": "start", "exponential": "k", "inverse_sigmoid": "k"}
    if name in number_is:
        return {"kind": "scheduled", "schedule": name, **({number_is[name]: number} if colon else {})}
    return {"kind": value}


ForcingSpec = Annotated[
    Annotated[TeacherForcing | FreeRunning | ScheduledSampling, Field(discriminator="kind")],
    BeforeValidator(_read_forcing),
]


class TrainSpec(Spec):
    start: str | None = Field(None, description="a run whose weights training begins with; `train RUN` sets it")
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
    precision: Literal["auto", "float32", "bfloat16", "bfloat16-weights"] = Field(
        "auto",
        description="auto: float32 on CPU, bfloat16 autocast on a GPU that has it; bfloat16-weights: a divided model "
        "(`shard`) also gathers its weights in bfloat16, while the optimiser moves them in float32",
    )
    log: tuple[Literal["wandb", "mlflow", "trackio"], ...] = Field(
        (), description="experiment trackers to report to as well; each must be installed"
    )
    deterministic: bool = Field(False, description="refuse nondeterministic operations")
    graph: Literal["auto", "never", "always"] = Field(
        "auto",
        description="a GPU's steps as one captured CUDA graph; auto: where that can be done; "
        "always: an error where it cannot",
    )
    shard: Literal["auto", "never", "always"] = Field(
        "auto",
        description="several processes: divide parameters, gradients and optimiser state between them (FSDP2); auto: "
        "on GPUs, where these would fill more than half of one GPU's memory",
    )
    recompute: bool = Field(
        False, description="keep a layer's input for the backward pass, and compute the rest again: less memory, slower"
    )
    offload: bool = Field(
        False, description="the optimiser keeps its state and moves the weights in the host's memory: slower steps"
    )

    evaluate_every: int = Field(250, ge=1, description="steps between two evaluations on the validation data")
    evaluate_tokens: int | None = Field(
        250_000, ge=1, description="most validation tokens read at each evaluation; none: all of them"
    )
    judge: str | None = Field(
        None, description="the validation metric that decides which weights are kept; default: the task's own"
    )
    save_every: int = Field(250, ge=1, description="steps between two checkpoints")
    save_in_background: bool = Field(
        False, description="write checkpoints while steps go on, from a copy of everything in the host's memory"
    )
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
