"""Pairs that rules can write and a corpus of sentences seldom holds: clock times, numbers, prices, dates, places.

    python recipes/en-de/by_rule.py ../shared/data build/en-de

German says the half hour to come (half past seven: halb acht) and the ones before the tens (ninety-one:
einundneunzig). Writes `rules.tsv` beside the `train.tsv` of `prepare.py`, without any sentence of the test or of dev.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path

from prepare import TEST, pairs, plain, sentences, write

Pair = tuple[str, str]
EACH = 160  # pairs of a frame, where its slots allow so many

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
EINS = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ZEHNER = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def table(text: str) -> dict[str, str]:
    """English=German, or a word that is the same in both."""
    return {word.split("=")[0]: word.split("=")[-1] for word in text.split()}


MONTHS = table(
    "January=Januar February=Februar March=März April May=Mai June=Juni July=Juli August September October=Oktober "
    "November December=Dezember"
)
DAYS = table(
    "Monday=Montag Tuesday=Dienstag Wednesday=Mittwoch Thursday=Donnerstag Friday=Freitag Saturday=Samstag "
    "Sunday=Sonntag"
)
CITIES = table(
    "Cologne=Köln Munich=München Nuremberg=Nürnberg Vienna=Wien Zurich=Zürich Geneva=Genf Hanover=Hannover "
    "Brunswick=Braunschweig Prague=Prag Warsaw=Warschau Rome=Rom Milan=Mailand Venice=Venedig Florence=Florenz "
    "Naples=Neapel Moscow=Moskau Lisbon=Lissabon Athens=Athen Copenhagen=Kopenhagen Brussels=Brüssel "
    "Strasbourg=Straßburg Cairo=Kairo Tokyo=Tokio Beijing=Peking Berlin Hamburg Leipzig Dresden Frankfurt Stuttgart "
    "Bremen Dortmund Essen Bonn Kassel Potsdam Rostock Erfurt Jena Augsburg Freiburg Heidelberg Salzburg Graz "
    "Innsbruck Basel Bern London Paris Madrid Boston Chicago Oslo Stockholm Amsterdam Budapest Barcelona Istanbul "
    "Sydney Toronto"
)
COUNTRIES = table(
    "Germany=Deutschland Austria=Österreich France=Frankreich Italy=Italien Spain=Spanien Portugal Poland=Polen "
    "Denmark=Dänemark Sweden=Schweden Norway=Norwegen Finland=Finnland Greece=Griechenland Hungary=Ungarn "
    "Belgium=Belgien Ireland=Irland Scotland=Schottland England Russia=Russland Japan China India=Indien "
    "Brazil=Brasilien Canada=Kanada Mexico=Mexiko Egypt=Ägypten Australia=Australien"
)
NAMES = table("Tom Mary Anna Peter Julia Paul Emma Lukas Sarah Martin Maria Felix Laura Jonas Lisa Karl")


def english(n: int) -> str:
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{ONES[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{ONES[n // 100]} hundred" + (f" and {english(n % 100)}" if n % 100 else "")
    return f"{english(n // 1000)} thousand" + (f" {english(n % 1000)}" if n % 1000 else "")


def german(n: int, *, last: bool = True) -> str:
    """Written in one word; a one at the end is eins, within a word ein."""
    if n == 1:
        return "eins" if last else "ein"
    if n < 20:
        return EINS[n]
    if n < 100:
        return (f"{german(n % 10, last=False)}und" if n % 10 else "") + ZEHNER[n // 10 - 2]
    if n < 1000:
        return f"{german(n // 100, last=False)}hundert" + (german(n % 100, last=last) if n % 100 else "")
    return f"{german(n // 1000, last=False)}tausend" + (german(n % 1000, last=last) if n % 1000 else "")


def clock(draw: random.Random) -> Pair:
    """A time of day as people say it."""
    hour, minute = draw.randint(1, 12), draw.choice((0, 0, 5, 10, 15, 15, 20, 25, 30, 30, 30, 35, 40, 45, 45, 50, 55))
    following = hour % 12 + 1
    if minute == 0:
        return f"{english(hour)} o'clock", f"{'ein' if hour == 1 else german(hour)} Uhr"
    if minute == 30:
        return f"half past {english(hour)}", f"halb {german(following)}"
    named = {15: ("a quarter", "Viertel"), 45: ("a quarter", "Viertel")}
    past, to = minute < 30, 60 - minute
    en, de = named.get(minute, (english(minute if past else to), german(minute if past else to)))
    if minute in (25, 35):  # from twenty on, German counts to and from the half hour
        return f"{en} {'past' if past else 'to'} {english(hour if past else following)}", (
            f"fünf {'vor' if past else 'nach'} halb {german(following)}"
        )
    return (
        f"{en} {'past' if past else 'to'} {english(hour if past else following)}",
        f"{de} {'nach' if past else 'vor'} {german(hour if past else following)}",
    )


def digital(draw: random.Random) -> Pair:
    hour, minute = draw.randint(0, 23), draw.randint(0, 59)
    return f"{hour}:{minute:02}", f"{hour}.{minute:02} Uhr" if draw.random() < 0.3 else f"{hour}:{minute:02} Uhr"


def number(draw: random.Random) -> Pair:
    """In words or in figures, of two or more."""
    n = int(draw.choice((draw.randint(2, 20), draw.randint(13, 99), draw.randint(21, 99), draw.randint(100, 999))))
    return (english(n), german(n)) if draw.random() < 0.5 else (str(n), str(n))


def large(draw: random.Random) -> Pair:
    n = draw.choice((draw.randint(1001, 9999), draw.randint(10, 999) * 1000, draw.randint(10_000, 999_999)))
    return f"{n:,}", f"{n:,}".replace(",", ".")


def price(draw: random.Random) -> Pair:
    euros, cents = draw.randint(2, 199), draw.choice((0, 0, 50, 95, 99, draw.randint(1, 99)))
    return (f"{euros}.{cents:02} euros", f"{euros},{cents:02} Euro") if cents else (f"{euros} euros", f"{euros} Euro")


def date(draw: random.Random) -> Pair:
    (en, de), day = draw.choice(list(MONTHS.items())), draw.randint(1, 28)
    ending = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return draw.choice((f"{en} {day}", f"{en} {day}{ending}")), f"{day}. {de}"


def year(draw: random.Random) -> Pair:
    n = str(draw.randint(1650, 2029))
    return n, n


def one_of(words: dict[str, str]) -> Callable[[random.Random], Pair]:
    return lambda draw: draw.choice(list(words.items()))


SLOTS: dict[str, Callable[[random.Random], Pair]] = {
    "clock": clock, "digital": digital, "number": number, "large": large, "price": price, "date": date, "year": year,
    "city": one_of(CITIES), "country": one_of(COUNTRIES), "day": one_of(DAYS), "month": one_of(MONTHS),
    "name": one_of(NAMES),
}  # fmt: skip

FRAMES = """
It's {clock}. | Es ist {clock}.
It's already {clock}. | Es ist schon {clock}.
It's almost {clock}. | Es ist fast {clock}.
Let's meet at {clock}. | Treffen wir uns um {clock}.
Let's meet at {clock} on {day}. | Treffen wir uns am {day} um {clock}.
The train leaves at {clock}. | Der Zug fährt um {clock} ab.
The train leaves at {digital}. | Der Zug fährt um {digital} ab.
The train to {city} leaves at {clock}. | Der Zug nach {city} fährt um {clock} ab.
When does the train to {city} leave? | Wann fährt der Zug nach {city} ab?
The bus arrives at {clock}. | Der Bus kommt um {clock} an.
The flight to {city} departs at {digital}. | Der Flug nach {city} geht um {digital}.
I get up at {clock}. | Ich stehe um {clock} auf.
I got up at {clock} this morning. | Ich bin heute Morgen um {clock} aufgestanden.
{name} gets up at {clock} every day. | {name} steht jeden Tag um {clock} auf.
We eat dinner at {clock}. | Wir essen um {clock} zu Abend.
The store opens at {clock}. | Das Geschäft öffnet um {clock}.
The shop closes at {clock}. | Der Laden schließt um {clock}.
School starts at {clock}. | Die Schule beginnt um {clock}.
The meeting starts at {clock}. | Die Sitzung beginnt um {clock}.
The film starts at {digital}. | Der Film fängt um {digital} an.
Please call me at {clock}. | Ruf mich bitte um {clock} an.
Can you pick me up at {clock}? | Kannst du mich um {clock} abholen?
Wake me up at {clock}. | Weck mich um {clock}.
I'll be back by {clock}. | Bis {clock} bin ich wieder da.
She came home at {clock}. | Sie kam um {clock} nach Hause.
There are {number} people in the room. | Im Zimmer sind {number} Leute.
There were {number} people at the party. | Auf der Feier waren {number} Leute.
I have {number} books. | Ich habe {number} Bücher.
My grandmother is {number} years old. | Meine Großmutter ist {number} Jahre alt.
{name} is {number} years old. | {name} ist {number} Jahre alt.
He turned {number} yesterday. | Er ist gestern {number} geworden.
She needs {number} chairs. | Sie braucht {number} Stühle.
We have {number} minutes left. | Wir haben noch {number} Minuten.
It takes {number} minutes by bus. | Mit dem Bus dauert es {number} Minuten.
The house has {number} windows. | Das Haus hat {number} Fenster.
Open the book at page {number}. | Schlagt das Buch auf Seite {number} auf.
My room number is {number}. | Meine Zimmernummer ist {number}.
The distance is {number} kilometers. | Die Entfernung beträgt {number} Kilometer.
He weighs {number} kilos. | Er wiegt {number} Kilo.
The village has {large} inhabitants. | Das Dorf hat {large} Einwohner.
About {large} people live here. | Hier leben etwa {large} Menschen.
{city} has more than {large} inhabitants. | {city} hat mehr als {large} Einwohner.
The car cost {large} euros. | Das Auto hat {large} Euro gekostet.
This costs {price}. | Das kostet {price}.
The ticket costs {price}. | Die Fahrkarte kostet {price}.
I paid {price} for it. | Ich habe {price} dafür bezahlt.
That will be {price}. | Das macht {price}.
He lent me {price}. | Er hat mir {price} geliehen.
My birthday is on {date}. | Mein Geburtstag ist am {date}.
Today is {date}. | Heute ist der {date}.
The concert is on {date}. | Das Konzert ist am {date}.
{name} was born on {date}, {year}. | {name} wurde am {date} {year} geboren.
He was born in {year}. | Er wurde {year} geboren.
She died in {year}. | Sie starb {year}.
The war ended in {year}. | Der Krieg endete {year}.
The bridge was built in {year}. | Die Brücke wurde {year} gebaut.
We moved to {city} in {year}. | Wir sind {year} nach {city} gezogen.
I live in {city}. | Ich wohne in {city}.
Do you live in {city}? | Wohnst du in {city}?
{name} lives in {city}. | {name} wohnt in {city}.
She comes from {city}. | Sie kommt aus {city}.
I was born in {city}. | Ich bin in {city} geboren.
I'm from {country}. | Ich komme aus {country}.
Have you ever been to {city}? | Warst du schon einmal in {city}?
Have you ever been to {country}? | Waren Sie schon einmal in {country}?
We're flying to {country} in {month}. | Wir fliegen im {month} nach {country}.
We're going to {city} tomorrow. | Wir fahren morgen nach {city}.
How far is it to {city}? | Wie weit ist es bis {city}?
How far is it from {city} to {city}? | Wie weit ist es von {city} nach {city}?
{city} is a beautiful city. | {city} ist eine schöne Stadt.
My brother studies in {city}. | Mein Bruder studiert in {city}.
On {day} we're going to {city}. | Am {day} fahren wir nach {city}.
The weather in {city} was bad. | Das Wetter in {city} war schlecht.
Is this the train to {city}? | Ist das der Zug nach {city}?
A ticket to {city}, please. | Eine Fahrkarte nach {city}, bitte.
See you on {day}. | Bis {day}!
I don't work on {day}. | Am {day} arbeite ich nicht.
Today is {day}. | Heute ist {day}.
The museum is closed on {day}. | Am {day} ist das Museum geschlossen.
School begins again in {month}. | Im {month} fängt die Schule wieder an.
"""


def said(frame: str, draw: random.Random) -> Pair:
    """A frame whose slots are filled, on both sides with the same."""
    en, de = frame.split(" | ")
    for slot, fill in SLOTS.items():
        while f"{{{slot}}}" in en:
            one, eins = fill(draw)
            en, de = en.replace(f"{{{slot}}}", one, 1), de.replace(f"{{{slot}}}", eins, 1)
    return en[0].upper() + en[1:], de[0].upper() + de[1:]


def main() -> None:
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    draw = random.Random(2017)
    apart = sentences(pairs(data / TEST))
    apart |= {plain(side) for line in (out / "dev.tsv").read_text("utf-8").splitlines() for side in line.split("\t")}
    frames = FRAMES.strip().splitlines()
    found: dict[Pair, None] = {}
    for frame in frames:
        its = dict.fromkeys(said(frame, draw) for _ in range(2 * EACH))
        found |= dict.fromkeys([pair for pair in its if not apart & {plain(side) for side in pair}][:EACH])
    write(out / "rules.tsv", found)
    print(f"{len(found):,} pairs by {len(frames)} frames")


if __name__ == "__main__":
    main()
