"""The lens `surprise` on answers: of classifiers, taggers, trees and forecasts."""

from typing import assert_never

import numpy as np

from statewise.inspection.finding import Finding
from statewise.inspection.progress import Progress, ticking
from statewise.inspection.subject import Subject, open_subject
from statewise.inspection.surprise.choices import found_in_choices
from statewise.inspection.surprise.forecasts import found_in_courses
from statewise.inspection.surprise.measure import Rival
from statewise.inspection.surprise.settings import SurpriseSettings
from statewise.specs import UserError, option
from statewise.tasks import Choices, Courses, Floats, Specimens


def look_at_answers(subject: Subject, specimens: Specimens, settings: SurpriseSettings, progress: Progress) -> Finding:
    answers = _answers(specimens, progress)
    rival = None if settings.against is None else _rival(subject, answers, settings.against, progress)
    match answers:
        case Choices():
            return found_in_choices(subject.name, specimens, answers, settings, rival)
        case Courses():
            return found_in_courses(subject.name, specimens, answers, settings, rival)
        case _:
            assert_never(answers)


def _answers(specimens: Specimens, progress: Progress) -> Choices | Courses:
    with ticking(progress, "asking for answers") as tick:
        return specimens.answers(tick)


def _rival(subject: Subject, mine: Choices | Courses, against: str, progress: Progress) -> Rival:
    """What another run paid for the same answers."""
    other = open_subject(against, text=subject.text, data=subject.data, mixer=subject.mixers)
    if other.specimens is None or other.task != subject.task:
        raise UserError(
            f"{against!r} is a {other.task} run and cannot be set against {subject.name}",
            fix=f"name another {subject.task} run",
        )
    theirs = _answers(other.specimens, progress)
    match (mine, theirs):
        case (Choices(), Choices()) if len(mine.nats_N) == len(theirs.nats_N) and mine.names == theirs.names:
            return Rival(other.name, mine.nats_N, theirs.nats_N)
        case (Choices(), Choices()) if subject.specimens is not None and subject.specimens.words.writes:
            # Other tokens, the same texts: what all of a row cost compares.
            if len(subject.specimens) == len(other.specimens):
                rows = len(other.specimens)
                return Rival(other.name, _by_row(mine, rows), _by_row(theirs, rows), of="row")
        case (Courses(), Courses()) if mine.loss_WH.shape == theirs.loss_WH.shape and mine.loss == theirs.loss:
            return Rival(other.name, mine.loss_WH.mean(1), theirs.loss_WH.mean(1))
        case _:
            pass
    raise UserError(
        f"{against!r} does not answer the same questions as {subject.name}",
        fix=f"compare runs that were trained on the same data, or name one file for both: {option('data', 'FILE')}",
    )


def _by_row(found: Choices, rows: int) -> Floats:
    """What all answers of each row cost together."""
    paid_P: Floats = np.bincount(found.row_N, weights=found.nats_N, minlength=rows).astype(np.float64)
    return paid_P
