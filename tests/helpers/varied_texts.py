"""Texts of many kinds, the same every time."""

import random

FRAGMENTS = [
    "The quick brown fox jumps over the lazy dog.", "I ate an apple", "Ich habe einen Apfel gegessen", "don't we'll",
    "naïve café résumé Ångström", "ÀÉÎÕÜ ŒŸ ß ſ ﬁ", "Привет, мир!", "Γειά σου Κόσμε", "مرحبا بالعالم", "שלום עולם",
    "नमस्ते दुनिया", "สวัสดีชาวโลก", "你好，世界。", "日本語のテキスト", "한국어 문장입니다", "Tiếng Việt",
    "🎉🚀", "👩‍👩‍👧‍👦 family", "🇩🇪🇫🇷", "👍🏽", "e\u0301 a\u0308 n\u0303", "\u200bzero\u200dwidth\ufeff", "½ ² Ⅷ ٣",
    "x = [i**2 for i in range(10)]  # code", "def f(a, b=None):\n    return a or b\n", "{\"key\": [1, 2.5, null]}",
    "http://example.org/a?b=c&d=%20", "user@example.org", "C:\\path\\file", "<b>bold</b> &amp;", "1,234,567.89",
    "2024-11-15T12:00:00Z", "007 3.14159 1e-10", "  leading", "trailing  ", "a  b   c    d", "tab\tseparated\tvalues",
    "line\nbreak\r\nbreak\n\n\nbreak", "\n", " ", "   12  34", "!!! ??? ...", "—–-_=+*&^%$#@~`|", "«quoted» “text”",
    "ANTIDISESTABLISHMENTARIANISM", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "supercalifragilisticexpialidocious" * 4,
    "𝕳𝖊𝖑𝖑𝖔 𝟙𝟚", "\x07bell\x1bescape", "nul\x00byte", "ﷺ ㍿ ﬀ", "ı İ i I", "ＦＵＬＬ　ｗｉｄｔｈ", "་བོད་ཡིག",
    "\U0001f9d1\u200d\U0001f4bb",
]  # fmt: skip


def varied_texts(count: int = 200) -> list[str]:
    """Every fragment by itself, then mixtures with and without spaces."""
    choose = random.Random(0)
    mixtures = [
        choose.choice(["", " ", "\n"]).join(choose.choices(FRAGMENTS, k=choose.randint(2, 6))) for _ in range(count)
    ]
    return ["", *FRAGMENTS, *mixtures][:count]
