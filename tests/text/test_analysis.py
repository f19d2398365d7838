"""One analysis for every language: what is written is found, in the same way every time."""

from __future__ import annotations

import pickle
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.text import Analyzer, words

# language, text, a query that must share a term with it, and one that must not
FOUND = [
    ("japanese", "東京の人口は約1400万人です。", "人口", "首都"),
    ("japanese, one character", "毎朝、水を飲みます。", "水", "火"),
    ("japanese, half-width kana", "コンピューターを使う", "ｺﾝﾋﾟｭｰﾀｰ", "ロボット"),
    ("chinese", "北京的地铁每天运送数百万人。", "地铁", "机场"),
    ("korean", "서울의 인구는 약 천만 명이다.", "인구", "수도"),
    ("korean, one character", "물을 마신다", "물", "불"),
    ("thai", "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "เมืองหลวง", "ฝน"),
    ("lao", "ວຽງຈັນເປັນນະຄອນຫຼວງ", "ນະຄອນ", "ຝົ"),
    ("khmer", "ភ្នំពេញជារាជធានី", "រាជធានី", "ទឹ"),
    ("myanmar", "နေပြည်တော်သည်မြို့တော်ဖြစ်သည်", "မြို့တော်", "ရထ"),
    ("hindi, end of sentence", "भारत की राजधानी नई दिल्ली है।", "राजधानियों", "नदी"),
    ("arabic, article", "عاصمة مصر هي القاهرة", "قاهرة", "نهر"),
    ("arabic, vowel signs", "الكِتابُ على الطاولة", "الكتاب", "نهر"),
    ("hebrew, points", "שָׁלוֹם עולם", "שלום", "ספר"),
    ("persian", "کتاب‌ها در خانه است", "کتابها", "شهر"),
    ("russian, case endings", "Музеи Москвы открыты для всех.", "в музее", "река"),
    ("russian, ё", "Ёлка стоит в зале", "елки", "река"),
    ("ukrainian", "Столиця України це Київ", "столиця", "річка"),
    ("german", "Die Bücher stehen in den Regalen.", "Buch Regal", "Wasser"),
    ("german, sharp s", "Die Straßen sind nass", "STRASSE", "Wasser"),
    ("french", "Les élèves sont dans les écoles.", "eleve", "rivière"),
    ("spanish", "Los médicos trabajan en los hospitales.", "medico", "río"),
    ("polish", "Łódź jest dużym miastem", "lodz", "rzeka"),
    ("turkish", "Kitaplar evde ve okulda", "kitap", "nehir"),
    ("greek", "Οι πόλεις της Ελλάδας", "πόλη πολεις", "ποτάμι"),
    ("danish", "Han bor på Ærø og det er en ø", "aero", "skov"),
    ("vietnamese", "Hà Nội là thủ đô của Việt Nam", "ha noi", "song"),
    ("soft hyphen", "Donau\u00addampf\u00adschiff", "Donaudampfschiff", "Wasser"),
]


@pytest.mark.parametrize(("text", "query", "other"), [row[1:] for row in FOUND], ids=[row[0] for row in FOUND])
def test_a_word_is_found_in_its_language(text, query, other):
    """The terms of the query stand among those of the text, and those of another word do not."""
    analysis = Analyzer().analyze(text)
    assert set(Analyzer().query_terms(query, languages=analysis.languages)) & set(analysis.terms)
    assert not set(Analyzer().query_terms(other, languages=analysis.languages)) & set(analysis.terms)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The cells were measured in the blood of mice", "english"),
        ("Cell growth factor receptor", "english"),
        ("Books go back after four weeks.", "english"),
        ("Hip scans of U.S. patients", "english"),
        ("Der Hund bellt", "german"),
        ("Wie lange darf ich ein Buch behalten?", "german"),
        ("La capitale de la France est Paris", "french"),
        ("La capital de España es Madrid", "spanish"),
        ("La capitale dell'Italia è Roma", "italian"),
        ("A capital de Portugal é Lisboa e não o Porto", "portuguese"),
        ("De hoofdstad van Nederland is niet Den Haag", "dutch"),
        ("Stockholm är huvudstaden i Sverige och det är stort", "swedish"),
        ("Helsinki on Suomen pääkaupunki ja se on suuri", "finnish"),
        ("Warszawa jest stolicą Polski i się rozwija", "polish"),
        ("Ankara Türkiye'nin başkentidir ve çok büyüktür", "turkish"),
        ("Столица России это Москва", "russian"),
        ("Софія є столицею і вона була", "ukrainian"),
        ("پایتخت ایران تهران است", "persian"),
        ("काठमाडौं नेपालको राजधानी हो र यो ठूलो छ", "nepali"),
    ],
)
def test_script_and_function_words_determine_the_language(text, language):
    """Short texts suffice; English is the default of Latin letters."""
    assert language in Analyzer().analyze(text).languages


def test_each_script_of_a_text_has_its_own_language():
    """Russian words in an English text are stemmed as Russian, Greek letters stay out of the way."""
    found = Analyzer().analyze("The museums (музеи) use β-carotene")
    assert found.languages == {"english", "russian", "greek"}
    assert {"museum", "муз", "β"} <= set(found.terms)


def test_a_query_is_stemmed_in_every_language_of_the_index():
    """A single word has no language; it takes the stem that each language of the index gives it."""
    analyzer = Analyzer()
    assert analyzer.query_terms("Bücher", languages=["english", "german"]) == ["bucher", "buch"]
    assert analyzer.query_words("Bücher lesen", languages=["english", "german"]) == [
        ("bucher", "buch"),
        ("lesen", "les"),
    ]
    assert analyzer.query_terms("Bücher", languages=["german"]) == ["buch"]
    assert analyzer.query_terms("городов", languages=["english", "russian"]) == ["город"]


def test_stop_words_are_dropped_unless_the_query_has_no_others():
    """English drops Lucene's list, other languages their own small words."""
    analyzer = Analyzer()
    assert analyzer.query_terms("the capital of France", languages=["english"]) == ["capit", "franc"]
    assert analyzer.query_terms("to be or not to be", languages=["english"]) == ["to", "be", "or", "not", "to", "be"]
    german = analyzer.query_terms("Wie ist die Hauptstadt von Frankreich?", languages=["german"])
    assert german == ["hauptstadt", "frankreich"]


def test_a_language_can_be_fixed_or_switched_off():
    """A name applies to all texts, "none" leaves words whole, another name is refused with the known ones."""
    assert Analyzer("german").terms("Cats and Häuser") == ["cat", "and", "haus"]
    assert Analyzer("none").terms("running Häuser") == ["running", "hauser"]
    assert Analyzer("none").query_terms("the running") == ["running"]
    with pytest.raises(InputError, match="Did you mean 'german'"):
        Analyzer("germn")


def test_an_analyzer_is_a_value():
    """Equal, hashable, picklable; its version tells language and stems."""
    again = pickle.loads(pickle.dumps(Analyzer("french")))
    assert again == Analyzer("french")
    assert len({again, Analyzer("french"), Analyzer()}) == 2
    assert Analyzer().version != Analyzer("none").version != Analyzer("french").version


@given(st.text(max_size=200))
def test_terms_are_clean_and_repeatable(text):
    """No white space, nothing empty, no part longer than a word may be; the same text, the same terms."""
    found = Analyzer().analyze(text)
    assert all(term and not any(map(str.isspace, term)) and len(term) <= 200 for term in found.terms)
    assert found == Analyzer().analyze(text)
    assert Analyzer().query_terms(text, languages=found.languages) == Analyzer().query_terms(
        text, languages=sorted(found.languages, reverse=True)
    )


@given(st.text(max_size=100))
def test_every_text_finds_itself(text):
    """The terms of a query are among the terms of the same text."""
    found = Analyzer().analyze(text)
    assert set(Analyzer().query_terms(text, languages=found.languages)) <= set(found.terms)


@pytest.mark.parametrize(
    "unit", ["a", "ж", "水", "ก", "\u0301", "é", "a\u0301", "\u00ad", "x ", "א\u05b0", "\u200d", "क्"]
)
@pytest.mark.slow
def test_long_repetitions_take_linear_time(unit):
    """Hostile repetition costs no more than text."""
    started = time.process_time()
    Analyzer().analyze(unit * (300_000 // len(unit)))
    assert time.process_time() - started < 1


def test_words_are_folded_and_not_stemmed():
    """Similarity ignores case and accents, and uses character pairs in scripts without spaces."""
    assert words("Crème BRÛLÉE, naïve") == ["creme", "brulee", "naive"]
    assert words("東京都") == ["東京", "京都"]
    assert words("हिन्दी।") == ["हिन्दी"]


@pytest.mark.slow
def test_long_words_are_not_cached():
    """A line of data without a space becomes terms of bounded length, and leaves nothing in the caches."""
    analyzer = Analyzer("auto")
    tracemalloc.start()
    try:
        for number in range(15):
            for letters in ("abc", "äöü", "абв"):
                (term,) = analyzer.analyze(f"{letters * 5_000}{number}").terms
                assert len(term) <= 100
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 300_000
