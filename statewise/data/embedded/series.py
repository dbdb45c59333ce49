"""Series from equations with known parameters: what a forecast can at best reach is known too.

Everything is a function of the arguments; the seed draws noise and starting points.

T time, C channels.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statewise.data.embedded.parts import Parts, parts
from statewise.data.lines import Examples, Where
from statewise.data.pairs import Pair
from statewise.data.series import Series, make_series
from statewise.specs import UserError, nearest


def _noise(seed: int, *shape: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64))).standard_normal(shape)


def seasonal(
    length: int = 4000,
    *,
    seed: int = 0,
    level: float = 10.0,
    trend: float = 0.002,
    periods: Sequence[float] = (24.0, 168.0),
    amplitudes: Sequence[float] = (2.0, 1.0),
    noise: float = 0.3,
) -> Series:
    """`x_t = level + trend t + Σ_k a_k sin(2π t / p_k) + noise ε_t`, hour after hour."""
    if len(periods) != len(amplitudes):
        raise UserError(f"{len(periods)} periods and {len(amplitudes)} amplitudes", fix="give as many of each")
    t_T = np.arange(length)
    x_T = level + trend * t_T + noise * _noise(seed, length)
    for period, amplitude in zip(periods, amplitudes, strict=True):
        x_T = x_T + amplitude * np.sin(2 * math.pi * t_T / period)
    time_T = np.datetime64("2020-01-01T00:00:00", "us") + t_T * np.timedelta64(1, "h")
    return make_series(x_T, id="seasonal", time=time_T, channels=["x"], where="the generator 'seasonal'")


def noisy_sine(length: int = 1000, *, seed: int = 0, rate: float = 0.01, noise: float = 0.2) -> Series:
    """`x_t = sin(rate t) + noise ε_t` for t = 1, 2, …: the example that most introductions begin with."""
    t_T = np.arange(1, length + 1, dtype=np.float64)
    x_T = np.sin(rate * t_T) + noise * _noise(seed, length)
    return make_series(x_T, id="noisy_sine", time=t_T, channels=["x"], where="the generator 'noisy_sine'")


def switching(
    length: int = 4000,
    *,
    seed: int = 0,
    coefficients: Sequence[float] = (0.9, -0.9),
    every: int = 500,
    noise: float = 0.5,
) -> Series:
    """`x_t = a(t) x_{t-1} + noise ε_t`, where a takes the next of the coefficients every so many steps.

    Not stationary: the last value alone says nothing of the next, the last value and t say all there is.
    """
    if every < 1 or not coefficients or any(abs(a) >= 1 for a in coefficients):
        raise UserError(f"coefficients {list(coefficients)} every {every} steps: expected numbers inside (-1, 1)")
    x, values = 0.0, []
    for t, shock in enumerate(_noise(seed, length).tolist()):
        x = coefficients[t // every % len(coefficients)] * x + noise * shock
        values.append(x)
    return make_series(np.array(values), id="switching", channels=["x"], where="the generator 'switching'")


def mackey_glass(
    length: int = 4000,
    *,
    seed: int = 0,
    tau: float = 17.0,
    beta: float = 0.2,
    gamma: float = 0.1,
    power: float = 10.0,
    step: float = 0.1,
    every: int = 10,
    washout: int = 300,
    start: float | None = None,
) -> Series:
    """`dx/dt = β x(t-τ) / (1 + x(t-τ)^n) - γ x` (Mackey and Glass 1977), chaotic from τ = 17 on.

    Runge-Kutta of order 4 with a fixed step; between two steps the past is the cubic that its values and
    slopes give, so that the order is kept. Every `every`-th step after `washout` values is shown.
    Before the beginning, x was `start`: 1.2 or, by the seed, near it.
    """
    delay = round(tau / step)
    if delay < 1 or abs(delay * step - tau) > 1e-9 * tau:
        raise UserError(f"tau {tau} is not a whole number of steps of {step}")
    start = 1.2 + 0.1 * float(_noise(seed, 1)[0]) if start is None else start

    def slope(x: float, late: float) -> float:
        return beta * late / (1 + math.pow(late, power)) - gamma * x

    xs = [start] * (delay + 1)
    slopes = [0.0] * delay  # before the beginning nothing moves; the slope at 0 itself is that of the equation
    slopes.append(slope(start, start))
    # The slope jumps at 0: the piece before it ends flat, the piece after it does not begin so.
    for number in range((washout + length) * every - 1):
        x, early, late = xs[-1], xs[number], xs[number + 1]
        ends = 0.0 if number + 1 <= delay else slopes[number + 1]
        half = (early + late) / 2 + step / 8 * (slopes[number] - ends)
        k1 = slope(x, early)
        k2 = slope(x + step / 2 * k1, half)
        k3 = slope(x + step / 2 * k2, half)
        k4 = slope(x + step * k3, late)
        xs.append(x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
        slopes.append(slope(xs[-1], late))
    x_T = np.array(xs[delay:])[washout * every :: every][:length]
    time_T = (washout + np.arange(length)) * every * step
    return make_series(x_T, id="mackey_glass", time=time_T, channels=["x"], where="the generator 'mackey_glass'")


def lorenz(
    length: int = 4000,
    *,
    seed: int = 0,
    sigma: float = 10.0,
    rho: float = 28.0,
    beta: float = 8 / 3,
    step: float = 0.01,
    every: int = 2,
    washout: int = 500,
    start: Sequence[float] | None = None,
) -> Series:
    """`dx/dt = σ(y - x)`, `dy/dt = x(ρ - z) - y`, `dz/dt = xy - βz` (Lorenz 1963), by Runge-Kutta of order 4."""
    point = tuple((1.0 + 0.1 * _noise(seed, 3)).tolist()) if start is None else tuple(map(float, start))

    def slope(at: tuple[float, ...]) -> tuple[float, ...]:
        x, y, z = at
        return sigma * (y - x), x * (rho - z) - y, x * y - beta * z

    def moved(at: tuple[float, ...], by: tuple[float, ...], size: float) -> tuple[float, ...]:
        return tuple(a + size * b for a, b in zip(at, by, strict=True))

    points = [point]
    for _ in range((washout + length - 1) * every):
        k1 = slope(point)
        k2 = slope(moved(point, k1, step / 2))
        k3 = slope(moved(point, k2, step / 2))
        k4 = slope(moved(point, k3, step))
        total = tuple(a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
        point = moved(point, total, step / 6)
        points.append(point)
    values_TC = np.array(points[washout * every :: every])
    time_T = (washout + np.arange(length)) * every * step
    names = ["x", "y", "z"]
    return make_series(values_TC, id="lorenz", time=time_T, channels=names, where="the generator 'lorenz'")


GENERATORS: dict[str, Callable[..., Series]] = {
    "seasonal": seasonal,
    "mackey_glass": mackey_glass,
    "lorenz": lorenz,
    "noisy_sine": noisy_sine,
    "switching": switching,
}


def embedded_series(name: str, *, seed: int = 0, **options: Any) -> Series:
    """One of the generators by its name, with its own options."""
    if name not in GENERATORS:
        raise UserError(f"there is no generator {name!r}", fix=nearest(name, GENERATORS))
    if options.get("length", 1) < 1:
        raise UserError(f"length is {options['length']}, expected at least 1")
    return GENERATORS[name](seed=seed, **options)


def oscillations(*, count: int = 2000, held: int = 200, length: int = 24, seed: int = 0) -> Parts[Pair]:
    """Pairs of a vector and a series: `(a, p, d)` and `x_t = a exp(-d t) cos(2π t / p)` for t = 0, 1, …

    Amplitudes a from 0.5 to 2, periods p from 6 to 24, decays d from 0 to 0.15.
    """
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, 1], dtype=np.uint64)))
    vectors_NI = generator.uniform((0.5, 6.0, 0.0), (2.0, 24.0, 0.15), (count + held, 3)).round(3)
    t_T, name = np.arange(length), f"oscillations, seed {seed}"
    pairs = []
    for number, (a, p, d) in enumerate(vectors_NI):
        x_T = a * np.exp(-d * t_T) * np.cos(2 * math.pi * t_T / p)
        target = " ".join(f"{value:g}" for value in x_T.round(4))
        pairs.append(Pair(f"{a:g} {p:g} {d:g}", target, Where(name, number, "example")))
    return parts(name, Examples(pairs[:count]), Examples(pairs[count:]))
