"""Scripts without spaces between words: noticed, and counted by character."""

import pytest
import sacrebleu

from statewise.data import Tokenizer
from statewise.data.text import only_chinese, space_characters, unsegmented
from statewise.specs import PairDataSpec, UserError
from statewise.tasks.metric.translation import sacre_tokens, translation_scores
from statewise.tasks.translation.examples import Languages, Pairs

CHINESE = ["我昨天在北京买了一本书。", "老师和朋友一起喜欢咖啡。", "猫去年画了三只狗。", "他忘记了《红楼梦》。"]
JAPANESE = ["私は昨日本を買いました。", "とても感動した二本の映画です。"]
THAI = ["ฉันชอบอ่านหนังสือมากที่สุด", "วันนี้อากาศดีมากและฉันจะไปตลาด"]


@pytest.mark.parametrize("texts", [CHINESE, JAPANESE, THAI, ["你好。", "我明白了。", "他跑了。"], ["\n".join(CHINESE)]])
def test_a_sentence_for_a_word_is_noticed(texts: list[str]) -> None:
    assert unsegmented(texts) in " ".join(texts).split()
    with pytest.raises(UserError, match="no spaces part the words of this script"):
        Tokenizer.train("word", texts, min_count=2)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["", "  \n"],
        ["我 昨天 在 图书馆 看 了 一 本 书 。"],
        ["東京 スカイツリー に 行き まし た 。"],
        ["ฉัน ชอบ อ่าน หนังสือ มาก ที่สุด"],
        ["The poem 静夜思床前明月光疑是地上霜 is by Li Bai, of the Tang dynasty."],
        ["Я люблю читать", "أحب القراءة كثيرا", "Donaudampfschifffahrtsgesellschaft"],
    ],
)
def test_words_are_words(texts: list[str]) -> None:
    assert unsegmented(texts) is None
    Tokenizer.train("word", texts)


def test_characters_apart() -> None:
    assert space_characters("在2020年, ok《红楼梦》。") == "在 2020 年 , ok 《 红 楼 梦 》 。"
    assert space_characters("a  b") == "a b"
    assert only_chinese(CHINESE)
    assert not only_chinese(JAPANESE)
    assert not only_chinese(THAI)
    assert not only_chinese(["abc"])


@pytest.mark.parametrize("texts", [CHINESE, JAPANESE, THAI])
def test_characters_come_back_without_spaces(texts: list[str]) -> None:
    tokenizer = Tokenizer.train("wordpunct", texts)
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
    mixed = Tokenizer.train("wordpunct", ["今天 good天气, 2本。"])
    assert mixed.decode(mixed.encode("今天 good天气, 2本。")) == "今天 good 天气 , 2 本。"


def languages(targets: list[str], **data: str) -> tuple[PairDataSpec, Languages]:
    spec = PairDataSpec(target_tokenizer=data.pop("tokenizer"), **data)
    sources = [f"line {i}" for i in range(len(targets))]
    return spec, Languages.learn(spec, Pairs(sources, targets, []))


@pytest.mark.parametrize("tokenizer", ["wordpunct", "char", "bpe"])
@pytest.mark.parametrize(("targets", "tokenize"), [(CHINESE, "zh"), (JAPANESE, "char"), (THAI, "char")])
def test_a_perfect_translation_is_perfect(tokenizer: str, targets: list[str], tokenize: str) -> None:
    spec, both = languages(targets, tokenizer=tokenizer)
    parting = both.parting(spec, targets)
    assert parting.tokenize == tokenize
    written = [both.target.decode(both.target.encode(text)) for text in targets]
    perfect = translation_scores(written, targets, parting=parting)
    assert perfect[:1] + perfect[2:] == pytest.approx((100, 100, 100, 0, 0, 1))
    half = [*written[:-1], written[0]]
    scores = translation_scores(half, targets, parting=parting)
    assert scores.bleu == sacrebleu.corpus_bleu(half, [targets], tokenize=tokenize).score
    assert 0 < scores.bleu_tokenised_lower < 100
    assert f"tok:{tokenize}" in scores.signature


def test_marks_that_the_vocabulary_parts_are_no_error() -> None:
    targets = ["I like coffee.", '"Dream", he said.']
    spec, both = languages(targets, tokenizer="wordpunct")
    written = [both.target.decode(both.target.encode(text)) for text in targets]
    assert written[0] == "I like coffee ."
    scores = translation_scores(written, targets, parting=both.parting(spec, targets))
    assert (scores.exact, scores.ter, scores.bleu_tokenised_lower) == pytest.approx((1, 0, 100))
    spec, both = languages(targets, tokenizer="word")
    assert both.parting(spec, targets).words(["I like coffee ."]) == ["I like coffee ."], "words are what spaces part"


def test_words_that_were_apart_may_come_back_together() -> None:
    """Chinese whose words are apart, read by character."""
    targets = ["我 昨天 在 北京 买 了 一 本 书 。", "老师 和 朋友 一起 喜欢 咖啡 。"]
    spec, both = languages(targets, tokenizer="wordpunct")
    parting = both.parting(spec, targets)
    written = [both.target.decode(both.target.encode(text)) for text in targets]
    assert written[0] == "我昨天在北京买了一本书。"
    assert translation_scores(written, targets, parting=parting).exact == 1
    assert parting.tokenize == "zh"
    assert sacre_tokens("13a", targets, characters=True) == "13a", "what somebody said stays"


def test_the_side_is_named() -> None:
    pairs = Pairs(["one", "two"], CHINESE[:2], [])
    with pytest.raises(UserError, match=r"the targets \(data.target_tokenizer\): no spaces"):
        Languages.learn(PairDataSpec(), pairs)
    with pytest.raises(UserError, match=r"the sources \(data.tokenizer"):
        Languages.learn(PairDataSpec(), Pairs(pairs.targets, pairs.sources, []))
