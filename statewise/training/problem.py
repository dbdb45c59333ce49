"""The two ways a training run ends early that are nobody's mistake."""


class NonFinite(RuntimeError):
    """The loss, a gradient or a weight is no longer a number. Raised before it reaches an update or a checkpoint."""

    def __init__(self, step: int, what: str, *, kept_from: str = "the weights were not updated") -> None:
        super().__init__(f"{what} is not finite at step {step}; {kept_from}")
        self.step = step
        self.what = what


class Stopped(Exception):
    """A signal asked for the end; what was done is saved."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped by signal {signal_number} after step {step}")
        self.signal_number = signal_number
        self.step = step

    @property
    def exit_code(self) -> int:
        return 128 + self.signal_number
