"""The guessing game: fair rounds, and answers that are never lost."""

import json

import pytest

from cutaway.before.shannon.bounds import LETTERS
from cutaway.before.shannon.game import Game, Player
from cutaway.before.shannon.players import ngram_curve, person_curve
from cutaway.errors import CheckpointError, InputError

TEXT = "The old man's dog ran after the cat, and the cat ran up the tall tree. " * 8
ORDER = " etaoinshrdlcumwfgypbvkxjqz"  # a player who knows only how frequent letters are


def game(**changes):
    return Game.of(TEXT, **{"known": (0, 3, 10), "samples": 4, **changes})


def play(player, n):
    """The next n guesses of that player."""
    for _ in range(n):
        if player.round is None:
            return
        player.guess(next(letter for letter in ORDER if letter not in player.open))


def test_rounds_come_in_turns_from_the_end_of_the_text():
    ours = game()
    assert [one.known for one in ours.rounds] == [0, 3, 10] * 4
    assert len({one.place for one in ours.of_known(3)}) == 4
    assert all(one.place >= ours.first == len(ours.text) - len(ours.text) // 10 for one in ours.rounds)
    for one in ours.rounds:
        start = one.place - one.known
        assert ours.text[start : start + one.known + 1] == ours.context(one) + ours.letter(one)
        assert len(ours.context(one)) == one.known
    assert game().rounds == ours.rounds != game(seed=1).rounds
    assert min(one.place for one in game(whole=True, samples=400).rounds) == 0


def test_short_texts_have_fewer_rounds():
    few = Game.of("ten words", known=(0, 2, 50), samples=100, whole=True)
    assert few.known == (0, 2)
    assert few.asked == (0, 2, 50)
    assert len(few.rounds) == 9 + 7
    assert Game.of("ten words", known=(0, 2), samples=10**18, whole=True).rounds == few.rounds  # and at once
    with pytest.raises(InputError, match=r"fewer than two letters a–z, .* --letters all, or give more"):
        Game.of("!!", known=(0,))
    with pytest.raises(InputError, match=r"fewer than two characters, .*from: give more"):
        Game.of("!", known=(0,), all_letters=True)
    with pytest.raises(InputError, match="known=9"):
        Game.of("ten words", known=(9,))


def test_all_letters_are_those_of_the_text():
    ours = Game.of("Ab\nc!", known=(1,), all_letters=True, more="z")
    assert (ours.letters, ours.text) == ("\n!Abcz", "Ab\nc!")
    assert game().letters == LETTERS


@pytest.mark.parametrize("left_after", [0, 1, 2, 11, 40])
def test_a_game_that_was_left_goes_on_as_if_it_had_not_been(tmp_path, left_after):
    straight, left = Player(game(), tmp_path / "straight.json"), Player(game(), tmp_path / "left.json")
    play(straight, 1000)
    play(left, left_after)
    left = Player(game(), tmp_path / "left.json")
    play(left, 1000)
    assert left.guesses == straight.guesses
    assert left.round is None
    assert (tmp_path / "left.json").read_text() == (tmp_path / "straight.json").read_text()


def test_every_guess_is_on_the_disk_before_the_next(tmp_path):
    player = Player(game(), tmp_path / "game.json")
    for _ in range(40):
        play(player, 1)
        saved = json.loads((tmp_path / "game.json").read_text())
        assert (saved["guesses"], saved["open"]) == (player.guesses, player.open)
        again = Player(game(), tmp_path / "game.json")
        assert (again.guesses, again.open, again.round) == (player.guesses, player.open, player.round)


def test_what_was_tried_or_is_no_letter_costs_nothing(tmp_path):
    player = Player(game(), tmp_path / "game.json")
    wrong = next(letter for letter in LETTERS if letter != player.game.letter(player.round))
    assert player.guess(wrong) is False
    assert [player.guess(letter) for letter in (wrong, "7", "É", "")] == [None] * 4
    assert player.open == wrong
    assert player.guess(player.game.letter(player.round)) is True
    assert player.ranks() == {0: [2], 3: [], 10: []}


def test_who_knows_the_text_has_no_entropy(tmp_path):
    player = Player(game(), tmp_path / "game.json")
    while player.round is not None:
        player.guess(player.game.letter(player.round))
    assert [(one.n, one.lower, one.upper) for one in person_curve(player).bounds] == [(4, 0, 0)] * 3


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: game(known=(0, 3)), "another known, 0,3,10, not 0,3"),
        (lambda: game(samples=5), "another samples, 4, not 5"),
        (lambda: game(seed=2), "another seed, 0, not 2"),
        (lambda: game(whole=True), "another first"),
        (lambda: Game.of(TEXT + "a", known=(0, 3, 10), samples=4), "another text"),
        (lambda: game(all_letters=True), "another text"),
    ],
)
def test_another_game_is_refused(tmp_path, other, said):
    play(Player(game(), tmp_path / "game.json"), 3)
    with pytest.raises(InputError, match=said):
        Player(other(), tmp_path / "game.json")


def test_damaged_games_are_refused(tmp_path):
    path = tmp_path / "game.json"
    play(Player(game(), path), 30)
    saved = json.loads(path.read_text())
    assert saved["guesses"]
    wrong = "x" if game().letter(game().rounds[0]) != "x" else "y"
    for change in ({"guesses": [wrong]}, {"guesses": [7]}, {"guesses": None}, {"open": "ee"}, {"open": "7"}):
        path.write_text(json.dumps(saved | change))
        with pytest.raises(InputError, match="damaged"):
            Player(game(), path)
    path.write_text("{}")
    with pytest.raises(InputError, match="no saved game"):
        Player(game(), path)
    path.write_text("{")
    with pytest.raises(CheckpointError, match="JSON"):
        Player(game(), path)


def test_an_n_gram_model_learns_a_text_that_repeats():
    curve = ngram_curve(game(samples=50))
    assert curve.bits[1] < 0.6 < 3 < curve.bits[0]
    assert np_isnan(curve.bits[2])  # ten letters are more than we count
    assert curve.bounds[0].n == len(game(samples=50).of_known(0))
    assert curve.bounds[2].n == 0
    other = ngram_curve(game(samples=50, whole=True), "zyx" * 100)
    assert other.bits[1] > curve.bits[1]
    with pytest.raises(InputError, match="give other text"):
        ngram_curve(game(whole=True))


def np_isnan(value):
    return value != value
