"""The two algorithms again, written the slow and obvious way, to compare with the library's."""

from itertools import pairwise

import regex

GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def best_score_merge(text: str, scores: dict[str, float], ids: dict[str, int]) -> list[int]:
    """llama2.c: begin with the characters (bytes where one is no piece), merge the neighbours with the best score."""
    pieces: list[str] = []
    for character in (" " + text if text else "").replace(" ", "▁"):
        known = character in scores
        pieces.extend([character] if known else [f"<0x{byte:02X}>" for byte in character.encode()])
    while True:
        best, place = -1e10, -1
        for at in range(len(pieces) - 1):
            # Two pieces that are bytes make no piece, whatever their names spell.
            whole = pieces[at] + pieces[at + 1] if {pieces[at], pieces[at + 1]} <= scores.keys() else ""
            if scores.get(whole, -1e10) > best:
                best, place = scores[whole], at
        if place < 0:
            return [ids[piece] for piece in pieces]
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]


def visible_bytes() -> dict[int, str]:
    """GPT-2's 256 visible characters for the bytes."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}


def ranks_of(merges: list[str]) -> dict[tuple[str, ...], int]:
    """The place of each pair in the list of merges: the smaller, the earlier it merges."""
    return {tuple(merge.split(" ")): n for n, merge in enumerate(merges)}


def byte_level_bpe(text: str, ids: dict[str, int], rank: dict[tuple[str, ...], int], single_digits: bool) -> list[int]:
    """Cut into words, then merge the bytes of each by rank; bytes that the vocabulary lacks are dropped."""
    to_visible = visible_bytes()
    parts = regex.split(r"(\p{N})", text) if single_digits else [text]
    result = []
    for word in (word for part in parts for word in regex.findall(GPT2_WORDS, part)):
        pieces = [to_visible[byte] for byte in word.encode()]
        while len(pieces) > 1:
            ranks = [rank.get(pair, len(rank)) for pair in pairwise(pieces)]
            best = min(ranks)
            if best == len(rank):
                break
            at = ranks.index(best)
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        result.extend(ids[piece] for piece in pieces if piece in ids)
    return result
