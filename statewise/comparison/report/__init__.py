"""The report of one or several studies: one content, written as HTML, Markdown and JSON."""

from statewise.comparison.report.write import Part as Part
from statewise.comparison.report.write import write_report as write_report
