"""Figures, tables and pages as data and as pictures: nothing here knows what they are about."""

from statewise.figures.drawing import Drawing as Drawing
from statewise.figures.drawing import svg_file as svg_file
from statewise.figures.figure import FORMATS as FORMATS
from statewise.figures.figure import Axis as Axis
from statewise.figures.figure import Figure as Figure
from statewise.figures.figure import Grid as Grid
from statewise.figures.figure import Scale as Scale
from statewise.figures.figure import Series as Series
from statewise.figures.figure import Unit as Unit
from statewise.figures.paint import paint as paint
from statewise.figures.paint import unwritten as unwritten
from statewise.figures.passage import Passage as Passage
from statewise.figures.passage import Pieces as Pieces
from statewise.figures.passage import between as between
from statewise.figures.passage import shared_ends as shared_ends
from statewise.figures.passage import stretched as stretched
from statewise.figures.passage import text_of as text_of
from statewise.figures.passage import with_their_halves as with_their_halves
from statewise.figures.svg import HUES as HUES
from statewise.figures.svg import swatch as swatch
from statewise.figures.table import Cell as Cell
from statewise.figures.table import Column as Column
from statewise.figures.table import Table as Table
from statewise.figures.table import csv_text as csv_text
from statewise.figures.table import number as number
from statewise.figures.table import words as words
