"""A recommender by dot products: learn a vector for every user and every movie from a few ratings.

    python examples/recommender.py [--users 200] [--movies 150] [--traits 3]

The ratings are generated: each user has likings and each movie has traits, and a rating is their dot product with some
noise. The model sees neither. From a part of the ratings it recovers both, up to a rotation: dot products do not change
when all vectors rotate together. `docs/recommender.md` continues from here to attention.

U users, M movies, K traits, N known ratings.
"""

import argparse
from typing import NamedTuple

import torch
from torch import Tensor


class Factors(NamedTuple):
    user_UK: Tensor
    movie_MK: Tensor

    def scores(self) -> Tensor:
        return self.user_UK @ self.movie_MK.mT


class Ratings(NamedTuple):
    user_N: Tensor
    movie_N: Tensor
    score_N: Tensor


def shared_fairly(factors: Factors) -> Factors:
    """The same dot products, in the one form (up to rotation) in which both sides carry each trait's size equally."""
    traits = factors.user_UK.shape[1]
    left_UK, size_K, right_KM = torch.linalg.svd(factors.scores(), full_matrices=False)
    root_K = size_K[:traits].sqrt()
    return Factors(left_UK[:, :traits] * root_K, right_KM[:traits].mT * root_K)


def plant(users: int, movies: int, traits: int, *, generator: torch.Generator) -> Factors:
    """Random likings and traits."""
    likings_UK = torch.randn(users, traits, generator=generator)
    return shared_fairly(Factors(likings_UK, torch.randn(movies, traits, generator=generator)))


def ask(planted: Factors, *, share: float, noise: float, generator: torch.Generator) -> tuple[Ratings, Ratings]:
    """Some of the ratings, and as many others that are kept back."""
    score_UM = planted.scores()
    pair_N = torch.randperm(score_UM.numel(), generator=generator)[: int(2 * share * score_UM.numel())]
    user_N, movie_N = pair_N // score_UM.shape[1], pair_N % score_UM.shape[1]
    score_N = score_UM[user_N, movie_N]
    score_N = score_N + noise * torch.randn(score_N.shape, generator=generator)
    half = len(pair_N) // 2
    known, kept_back = (Ratings(user_N[s], movie_N[s], score_N[s]) for s in (slice(half), slice(half, None)))
    return known, kept_back


def learn(
    known: Ratings,
    *,
    users: int,
    movies: int,
    traits: int,
    steps: int = 400,
    decay: float = 1e-3,
    generator: torch.Generator,
) -> Factors:
    """Gradient descent on `Σ (user · movie - rating)²`, with a small price on long vectors."""
    user_UK = (0.3 * torch.randn(users, traits, generator=generator)).requires_grad_()
    movie_MK = (0.3 * torch.randn(movies, traits, generator=generator)).requires_grad_()
    optimizer = torch.optim.Adam([user_UK, movie_MK], lr=5e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        score_N = (user_UK[known.user_N] * movie_MK[known.movie_N]).sum(-1)
        price = decay * (user_UK.square().mean() + movie_MK.square().mean())
        loss = (score_N - known.score_N).square().mean() + price
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return shared_fairly(Factors(user_UK.detach(), movie_MK.detach()))


def error(factors: Factors, ratings: Ratings) -> float:
    """Root mean square error of the predicted ratings."""
    score_N = factors.scores()[ratings.user_N, ratings.movie_N]
    return float((score_N - ratings.score_N).square().mean().sqrt())


def distance_up_to_rotation(found: Factors, planted: Factors) -> float:
    """What is left between the two, as a share of the planted vectors' size, after the best common rotation."""
    a_NK, b_NK = torch.cat(found), torch.cat(planted)
    left_KK, _, right_KK = torch.linalg.svd(a_NK.mT @ b_NK)
    return float((a_NK @ left_KK @ right_KK - b_NK).norm() / b_NK.norm())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("users", 200), ("movies", 150), ("traits", 3), ("seed", 0)):
        options.add_argument(f"--{name}", type=int, default=default)
    chosen = options.parse_args()
    generator = torch.Generator().manual_seed(chosen.seed)
    planted = plant(chosen.users, chosen.movies, chosen.traits, generator=generator)
    noise = 0.1
    known, kept_back = ask(planted, share=0.2, noise=noise, generator=generator)
    found = learn(known, users=chosen.users, movies=chosen.movies, traits=chosen.traits, generator=generator)
    spread = float(kept_back.score_N.std())
    print(f"{len(known.user_N)} ratings known, of {chosen.users * chosen.movies}; {len(kept_back.user_N)} kept back")
    print(
        f"error on those kept back: {error(found, kept_back):.3f} (noise alone {noise}, knowing nothing {spread:.2f})"
    )
    print(f"distance from the planted vectors, up to rotation: {distance_up_to_rotation(found, planted):.3f}")
    best_K = found.scores()[0].topk(3).indices.tolist()
    print(f"for user 0: movies {best_K}; truly best: {planted.scores()[0].topk(3).indices.tolist()}")


if __name__ == "__main__":
    main()
