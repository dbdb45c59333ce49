"""Text in, batches out: corpora, tokenizers, and the order in which a model reads."""

from statewise.data.batch import Batch as Batch
from statewise.data.batch import Batches as Batches
from statewise.data.batch import EvaluationBatch as EvaluationBatch
from statewise.data.batch import evaluation_lanes as evaluation_lanes
from statewise.data.corpus import Corpus as Corpus
from statewise.data.corpus import Split as Split
from statewise.data.corpus import encode_files as encode_files
from statewise.data.corpus import open_corpus as open_corpus
from statewise.data.source import Source as Source
from statewise.data.source import open_source as open_source
from statewise.data.tokenizer import Tokenizer as Tokenizer
from statewise.data.unigram import token_counts as token_counts
from statewise.data.unigram import unigram_nats as unigram_nats
