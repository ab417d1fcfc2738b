"""Pages: what is no text comes back to the character, whatever the page and the translator are."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cutaway.serving.html import _pieces, translate_html

WORDS = {
    "I love dogs.": "Ich liebe Hunde.",
    "love": "Liebe",
    "I": "Ich",
    "love dogs.": "Liebe Hunde.",
    "Please click here to go on.": "Bitte klicken Sie hier, um fortzufahren.",
    "click here": "Klicken Sie hier.",
    "Use the ls command.": "Verwende den Befehl ls.",
    "The white house and the red car.": "Das rote Auto und das weiße Haus.",
    "white house": "weiße Haus",
    "red": "rote",
    "red car": "rote Auto",
    "One two three four.": "Eins zwei drei vier.",
}
SOUP = [
    "<p>", "</p>", "<b>", "</b>", "<i class='x>y'>", "</i>", '<a href="?a=b&amp;c">', "</a>", "<br/>", "<img src=x>",
    "<!-- c -->", "<!DOCTYPE html>", "<script>", "</script>", "if (a<b) {}", "<pre>", "</pre>", "<code>", "</code>",
    "<td>", "&nbsp;", "&lt;", "&amp", "&bogus;", "&#65;", "&#x110000;", "<", ">", '"', "'", "a < b", '<a href="',
    "<a b='", "</", "<!", "<!--", "<?php ?>", "\n", "  ", "One two.", "Three", "four!", "日本。", "<p translate=no>",
    '<span class="a notranslate">', "</span>", "<textarea>", "\x00",
]  # fmt: skip
pages = st.lists(st.sampled_from(SOUP) | st.text(max_size=4), max_size=14).map("".join)


def german(texts):
    return [WORDS.get(text, text) for text in texts]


def shouted(texts):
    return [text.upper() for text in texts]


@settings(max_examples=3000, deadline=None)
@given(pages)
@example("<b>One</b><i> two.</i>Three <b>")
@example("x &nbsp;y")
def test_what_is_translated_as_itself_is_the_same_page(page):
    assert translate_html(page, list) == page


@given(pages, st.text(max_size=20))
@example('<span class="a notranslate">A<a href="', "")
@settings(max_examples=3000)
def test_no_tag_is_lost_or_made(page, said):
    """Whatever the translator says is text, and stands between the tags of the page."""
    found = translate_html(page, lambda texts: [f"{said} {n}" for n in range(len(texts))])
    assert Counter(tags(found)) == Counter(tags(page))


def words(page):
    return "".join(piece.text for piece in _pieces(page))


def tags(page):
    return [piece.raw for piece in _pieces(page) if piece.name and piece.raw]


def test_tags_keep_their_order_where_their_words_are_not_found():
    many = " ".join(f"<b>w{n}</b> x" for n in range(9))
    for said in ("Eins zwei.", "Eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf.", ""):
        found = translate_html(f"<p>{many}</p>", lambda texts, said=said: [said] * len(texts))
        assert tags(found) == tags(f"<p>{many}</p>"), found
        assert words(found) == said


def test_two_elements_have_two_places():
    page = "<a>one</a> and <b>one</b>"
    known = {"one and one": "eins und eins", "one": "eins"}
    assert translate_html(page, lambda texts: [known[text] for text in texts]) == "<a>eins</a> und <b>eins</b>"
    known["one and one"] = "nur eins, mehr nicht"
    found = translate_html(page, lambda texts: [known[text] for text in texts])
    assert (tags(found), words(found)) == (tags(page), known["one and one"])


@settings(max_examples=3000, deadline=None)
@given(pages)
def test_every_text_is_asked_for_once(page):
    asked = []
    translate_html(page, lambda texts: asked.append(texts) or texts)
    assert len(asked) <= 1
    for texts in asked:
        assert len(texts) == len(set(texts))
        assert all(text == text.strip() and any(map(str.isalpha, text)) for text in texts)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>I <b>love</b> dogs.</p>", "<p>Ich <b>liebe</b> Hunde.</p>"),
        ("<p>I\n   <b>love</b>\n dogs.\n</p>", "<p>Ich <b>liebe</b> Hunde.\n</p>"),
        (
            "Please <a href='x>y'>click here</a> to go on.",
            "Bitte <a href='x>y'>klicken Sie hier</a>, um fortzufahren.",
        ),
        (" <b>I</b> love dogs.", " <b>Ich</b> liebe Hunde."),
        ("I <b>love dogs.</b>\n", "Ich <b>liebe Hunde</b>.\n"),
        ("Use the <code class=c>ls</code> command.", "Verwende den Befehl <code class=c>ls</code>."),
        (
            "The <i>white house</i> and the <b><u>red</u> car</b>.",
            "Das <b><u>rote</u> Auto</b> und das <i>weiße Haus</i>.",
        ),
        ("One <img src=a> two three four.", "Eins <img src=a>zwei drei vier."),
        ("One two <b>three four.", "Eins zwei <b>drei vier."),
        ("One two</b> three four.", "Eins zwei</b> drei vier."),
        ("<b>One <i>two</b> three</i> four.", "<b>Eins <i>zwei</b> drei</i> vier."),
    ],
)
def test_tags_go_where_their_words_go(page, expected):
    assert translate_html(page, german) == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("a < b &amp; c &lt;d&gt;", "A &lt; B &amp; C &lt;D&gt;"),
        ("<p title=it's>yes", "<p title=it's>YES"),
        ("<p title='no > no'>yes</p>", "<p title='no > no'>YES</p>"),
        ("<title>yes</title><script>no('<p>no')</script>yes", "<title>YES</title><script>no('<p>no')</script>YES"),
        ("<STYLE>no</Style >yes<style>no", "<STYLE>no</Style >YES<style>no"),
        ("yes<!-- no <b>no</b> -->yes<!-- no", "YES<!-- no <b>no</b> -->YES<!-- no"),
        ("<pre>no <b>no</b>\n</pre>yes", "<pre>no <b>no</b>\n</pre>YES"),
        ("<p translate=no>no<p>no</p>no</p>yes", "<p translate=no>no<p>no</p>no</p>YES"),
        ("<div class='a notranslate b'>no</div>yes", "<div class='a notranslate b'>no</div>YES"),
        ("yes&nbsp;yes&eacute; &copy;", "YES&nbsp;YESÉ &copy;"),
        ("<td>3.5</td><td>&copy; 2024</td>", "<td>3.5</td><td>&copy; 2024</td>"),
        ('<a href="no', '<a href="no'),
        ("yes <a href='no> no", "YES <a href='no> no"),
        ("<br translate=no>yes <img translate=no> yes", "<br translate=no>YES <img translate=no>YES"),
        ("<textarea>no <b>no</textarea> yes", "<textarea>no <b>no</textarea> YES"),
        ("1 <2 yes", "1 &lt;2 YES"),
    ],
)
def test_what_is_text_and_what_is_not(page, expected):
    assert translate_html(page, shouted) == expected


def test_sentences_are_asked_for_without_their_tags():
    asked = []
    translate_html(
        "<p><b>One</b> two. Th<i>r</i>ee\nfour!</p><li>Five</li><b>Six. Seven</b>",
        lambda texts: asked.extend(texts) or texts,
    )
    assert asked == ["One two.", "One", "Three four!", "r", "Five", "Six.", "Seven"]


@pytest.mark.parametrize(
    "page",
    [
        "<" * 300_000,
        "<a " * 100_000,
        '<a ">" ' * 50_000,
        "<a b='" * 50_001,
        "<!--" * 100_000,
        "<b>" * 50_000 + "word" + "</b>" * 50_000,
        "<b>a" * 20_000,
        "<pre>" * 50_000,
        "<script>" * 50_000,
        "<xmp></xmp>" * 20_000,
        "&" * 300_000,
        "&a" * 100_000,
        "a. " * 50_000,
        "A word. " * 30_000,
        "a" * 500_000,
        " " * 500_000,
        "<p>a</p>" * 20_000,
        "<a " + "=" * 500_000 + ">a</a>",
        "<a " + "b='c' " * 100_000 + ">a</a>",
        "a <b>b</b> " * 10_000,
    ],
    ids=lambda page: page[:12],
)
def test_a_hostile_page_takes_no_longer_than_a_long_one(page):
    assert translate_html(page, list) == page
    assert translate_html(page, shouted)
