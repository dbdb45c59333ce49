"""The lens `attention`: heads and, of what writes after having read, alignments."""

from statewise.inspection.attention.heads import look_at_heads
from statewise.inspection.attention.pairs import look_at_pairs
from statewise.inspection.attention.rows import look_at_rows
from statewise.inspection.attention.settings import AttentionSettings
from statewise.inspection.finding import Finding
from statewise.inspection.lens import ROW_TASKS, Lens
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject


def look(subject: Subject, settings: AttentionSettings, progress: Progress) -> Finding:
    specimens = subject.specimens
    if specimens is None:
        return look_at_heads(subject, settings, progress)
    if specimens.at(0).begin is not None:  # it goes on from what something else has read
        return look_at_pairs(subject, specimens, settings, progress)
    return look_at_rows(subject, specimens, settings, progress)


LENS = Lens(
    "attention",
    "Exact attention weights by layer and head, head entropy; alignments of translations, and whether they are right.",
    ("language_model", *ROW_TASKS),
    quick=True,
    settings=AttentionSettings,
    look=look,
)
