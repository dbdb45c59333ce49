"""The lens `attention`: of a language model, its heads; of a translator, its alignments."""

from statewise.inspection.attention.heads import look_at_heads
from statewise.inspection.attention.pairs import look_at_pairs
from statewise.inspection.attention.rows import look_at_rows
from statewise.inspection.attention.settings import AttentionSettings
from statewise.inspection.finding import Finding
from statewise.inspection.lens import ROW_TASKS, Lens
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject
from statewise.tasks.translation import TranslationRun


def look(subject: Subject, settings: AttentionSettings, progress: Progress) -> Finding:
    if subject.specimens is not None:
        return look_at_rows(subject, subject.specimens, settings, progress)
    if isinstance(subject.run, TranslationRun):
        return look_at_pairs(subject.run, subject.text, settings, progress)
    return look_at_heads(subject, settings, progress)


LENS = Lens(
    "attention",
    "Exact attention weights by layer and head, head entropy; alignments of translations, and whether they are right.",
    ("language_model", "translation", *ROW_TASKS),
    quick=True,
    settings=AttentionSettings,
    look=look,
)
