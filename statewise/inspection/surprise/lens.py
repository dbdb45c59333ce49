"""The lens `surprise`: per token, by confidence, by position, and against another model."""

from dataclasses import replace

from statewise.display import alone, plain, share, visible, whole
from statewise.figures import (
    Axis,
    Cell,
    Column,
    Drawing,
    Figure,
    Passage,
    Series,
    Table,
    stretched,
    with_their_halves,
    words,
)
from statewise.inspection.finding import Finding, Named
from statewise.inspection.lens import ROW_TASKS, Lens
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject, open_subject
from statewise.inspection.surprise.answers import look_at_answers
from statewise.inspection.surprise.measure import Place, Surprise, measure, places, reliability, useful_context
from statewise.inspection.surprise.settings import SurpriseSettings
from statewise.inspection.text import Reading
from statewise.specs import UserError

LEVELS = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)  # bits: where a deeper colour begins
_COMPARED = 4000  # tokens that two models are compared on where no text is given


def look(subject: Subject, settings: SurpriseSettings, progress: Progress) -> Finding:
    if subject.specimens is not None:
        return look_at_answers(subject, subject.specimens, settings, progress)
    if settings.against is not None and subject.text is None:
        subject = _with_text(subject)
    reading = subject.tokens
    found = measure(subject.machine, reading, progress)
    context = useful_context(found.by_position)
    figures: list[Drawing] = [
        _passage(reading, found, settings.shown),
        _position(found, context),
        reliability(found.bins, found.error, of="Tokens"),
    ]
    tables = [_worst(reading, found, settings.worst)]
    sentences = [
        f"{subject.name} pays {plain(found.mean)} bits a token on {reading.source} ({len(found.bits_T):,} tokens) and "
        f"expected to pay {plain(found.entropy)}; its first guess is right {share(found.accuracy)} of the time, and "
        f"its confidence is off by {share(found.error)} in the mean.",
        _context_sentence(found, context),
    ]
    data = {
        "bits_per_token": found.mean,
        "expected_bits_per_token": found.entropy,
        "tokens": len(found.bits_T),
        "accuracy": found.accuracy,
        "calibration_error": found.error,
        "bins": [one._asdict() for one in found.bins],
        "by_position": [one._asdict() for one in found.by_position],
        "useful_context": context,
        "bits": [round(one, 6) for one in found.bits_T[: settings.shown].tolist()],
    }
    if settings.against is not None:
        other = open_subject(settings.against, text=subject.text, mixer=subject.mixers)
        if other.task != subject.task:
            raise UserError(
                f"{settings.against!r} is a {other.task} run and cannot be set against {subject.name}",
                fix="name another language model",
            )
        read = measure(other.machine, other.tokens, progress)
        apart = places(_pieces(reading, found), _pieces(other.tokens, read))
        figures.insert(0, _difference(apart, subject.name, other.name, settings.shown))
        tables.insert(0, _disagreements(apart, subject.name, other.name, settings.worst))
        total = sum(one.gap for one in apart)
        letters = max(sum(len(one.piece) for one in apart), 1)
        better, worse = (other.name, subject.name) if total > 0 else (subject.name, other.name)
        sentences.insert(0, f"{better} pays {plain(abs(total) / letters)} bits a character less than {worse}.")
        data["against"] = {
            "run": other.name,
            "bits": [float(one) for one in (found.bits_T.sum(), read.bits_T.sum())],
            "bits_per_character": [float(one) / letters for one in (found.bits_T.sum(), read.bits_T.sum())],
            "places": len(apart),
        }
    missing: tuple[str, ...] = ()
    if len(found.bits_T) > settings.shown:
        missing = (f"The text is shown to its token {settings.shown:,}; the numbers are of all {len(found.bits_T):,}.",)
    return Finding("surprise", "Surprise", subject.name, tuple(sentences), tuple(figures), tuple(tables), data, missing)


def _with_text(subject: Subject) -> Subject:
    """Held-out tokens as a text that a model with other tokens can read too."""
    assert subject.run is not None, "only a run can be set against another"
    reading = subject.tokens
    names = reading.names(0, _COMPARED)
    ordered = names[::-1] if reading.backwards else names
    text = "".join(name for name, token in zip(ordered, _ids(reading)) if token != reading.end_id)
    held = open_subject(subject.run, text=text + "\n" if " " not in text else text)
    return held._replace(reading=replace(held.tokens, source=reading.source))


def _ids(reading: Reading) -> list[int]:
    ids = [int(one) for one in reading.tokens_T[:_COMPARED]]
    return ids[::-1] if reading.backwards else ids


def _pieces(reading: Reading, found: Surprise) -> list[tuple[str, float]]:
    """The text's pieces in its own order, each with what it cost; half characters wait for their other half."""
    names = reading.names()
    costs = [0.0, *found.bits_T.tolist()]  # the first token is given
    ordered = list(zip(names, costs, reading.tokens_T.tolist()))
    if reading.backwards:
        ordered.reverse()
    return with_their_halves([(name, cost) for name, cost, token in ordered if token != reading.end_id])


def _passage(reading: Reading, found: Surprise, most: int) -> Passage:
    names = reading.names(0, most + 1)
    tokens = [(name, bits) for name, bits in zip(names[1:], found.bits_T.tolist())]
    if reading.backwards:
        tokens.reverse()
    pieces = with_their_halves(tokens)
    shown = max(pieces, key=lambda one: one[1])
    parts = " Of a character in several tokens, what they cost together." if len(pieces) < len(tokens) else ""
    return Passage(
        "surprise-text",
        "What surprised the model",
        tuple(pieces),
        "bits",
        reading=f"The deeper the colour, the more bits a token cost: the less it was expected.{parts}",
        finding=f"Of what is shown, {alone(shown[0])!r} surprised most, with {plain(shown[1])} bits.",
        bounds=stretched(LEVELS, [bits for _, bits in pieces]),
    )


def _position(found: Surprise, context: int | None) -> Figure:
    buckets = found.by_position
    middle = tuple((one.low + one.high) / 2 + 1 for one in buckets)
    means = tuple(one.mean for one in buckets)
    return Figure(
        "surprise-position",
        "Does more context help?",
        "line",
        Axis("tokens read before, counted from 1", "log", "whole", base=2),
        Axis("bits per token"),
        (
            Series(
                "mean",
                middle,
                means,
                tuple(one.mean - one.half for one in buckets),
                tuple(one.mean + one.half for one in buckets),
            ),
        ),
        reading="Mean surprise of tokens by how much the model had read before them; the band is a 95 % interval.",
        finding=_context_sentence(found, context),
    )


def _context_sentence(found: Surprise, context: int | None) -> str:
    if context is None:
        return "The text is too short to say how much context helps."
    first, last = found.by_position[0], found.by_position[-1]
    ends = (
        f"The first token of a fresh start costs {plain(first.mean)} bits, those after {last.low:,} {plain(last.mean)}"
    )
    if context >= last.low:
        return f"{ends}: more context still helps at the longest that was read."
    beyond = "1 token" if context <= 1 else f"about {context:,} tokens"
    return f"{ends}: beyond {beyond} more context is no longer surely cheaper."


def _worst(reading: Reading, found: Surprise, most: int) -> Named:
    order = found.bits_T.argsort(descending=True)[:most].tolist()
    rows = []
    for at in order:
        before = "".join(reading.names(max(at - 24, 0), at + 1))
        name = reading.names(at + 1, at + 2)[0]
        bits = float(found.bits_T[at])
        rows.append((Cell(at + 1, whole(at + 1)), words(visible(before)), words(alone(name)), Cell(bits, plain(bits))))
    columns = (
        Column("token", "token"),
        Column("before", "what was read before it", text=True),
        Column("piece", "it", text=True),
        Column("bits", "surprise", "bits"),
    )
    reading_ = "Tokens in the order of their cost."
    return Named("surprise-worst", "What surprised most", reading_, Table(columns, tuple(rows)))


def _difference(apart: list[Place], first: str, second: str, most: int) -> Passage:
    shown = apart[:most]
    mine = sum(one.gap > 0 for one in apart)
    return Passage(
        "surprise-difference",
        f"Where {first} and {second} differ",
        tuple((one.piece, one.gap) for one in shown),
        "bits",
        reading=f"Orange: {second} expected it more than {first}; blue: the other way round.",
        finding=f"{second} was less surprised at {mine:,} of {len(apart):,} pieces.",
        bounds=stretched(LEVELS, [one.gap for one in shown]),
        signed=True,
    )


def _disagreements(apart: list[Place], first: str, second: str, most: int) -> Named:
    rows = [
        (
            words(visible(one.before)),
            words(alone(one.piece)),
            Cell(one.first, plain(one.first)),
            Cell(one.second, plain(one.second)),
            Cell(one.gap, plain(one.gap)),
        )
        for one in sorted(apart, key=lambda one: -abs(one.gap))[:most]
    ]
    columns = (
        Column("before", "after", text=True),
        Column("piece", "the piece", text=True),
        Column("first", first, "bits"),
        Column("second", second, "bits"),
        Column("gap", "gap", "bits"),
    )
    reading = f"The largest gaps come first; above 0, {second} paid less."
    return Named("surprise-disagreements", "The largest differences", reading, Table(columns, tuple(rows)))


LENS = Lens(
    "surprise",
    "What every token, row or forecast cost; calibration; cost against position; two models on the same.",
    ("language_model", *ROW_TASKS),
    quick=True,
    settings=SurpriseSettings,
    look=look,
)
