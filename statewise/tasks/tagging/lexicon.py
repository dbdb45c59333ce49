"""The trivial tagger as a file of the run: which words training showed, and the most frequent tag of each."""

import json

from statewise.specs import UserError, from_json
from statewise.tasks.baseline import FrequentTag


def lexicon_to_json(lexicon: FrequentTag) -> str:
    return json.dumps({"otherwise": lexicon.otherwise, "words": dict(lexicon.of_word)}, ensure_ascii=False)


def lexicon_from_json(text: str) -> FrequentTag:
    try:
        table = from_json(text)
        return FrequentTag({str(word): str(tag) for word, tag in table["words"].items()}, str(table["otherwise"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError("lexicon.json is not that of a run", fix="the file is damaged: copy it again") from None
