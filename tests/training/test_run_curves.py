"""The run log and what is made of it: records, and pictures that any browser reads."""

import json
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InputError
from cutaway.training.run_curves import RunRecord, find_runs, plot_runs, read_run
from cutaway.training.run_log import RunLog, read_log

NUMBERS = st.floats(width=32) | st.floats(0, 20)  # losses are single precision; NaN and infinity too
SVG = "{http://www.w3.org/2000/svg}"


def write_log(folder: Path, *events: dict[str, Any]) -> Path:
    log = RunLog(folder / "run" / "log.jsonl", [])
    for event in events:
        log(event)
    log.close()
    return folder


def test_what_is_logged_is_read_and_heard(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    log = RunLog(tmp_path / "run" / "log.jsonl", [heard.append])
    events = [{"event": "start", "name": "Übung → «a»"}, {"event": "step", "step": 1, "loss": 2.5, "samples": ["x\ny"]}]
    for event in events:
        log(event)
    log.close()
    assert heard == events
    assert list(read_log(tmp_path / "run" / "log.jsonl")) == events


def test_the_log_is_json_that_any_reader_reads(tmp_path: Path) -> None:
    """JSON has no NaN: Python's would write one that others refuse."""
    write_log(tmp_path, {"event": "step", "step": 1, "loss": float("nan"), "all": [float("inf"), (1, 2)]})
    text = (tmp_path / "run" / "log.jsonl").read_text()

    def refuse(word: str) -> None:
        raise AssertionError(word)

    read = json.loads(text, parse_constant=refuse)
    assert read == {"event": "step", "step": 1, "loss": "nan", "all": ["inf", [1, 2]]}


@given(st.integers(1, 60))
def test_a_line_that_a_crash_cut_short_costs_that_line_alone(n: int) -> None:
    """Wherever it was cut, also inside of a letter of several bytes; what a resumed run writes is whole."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run" / "log.jsonl"
        write_log(Path(folder), {"event": "step", "step": 1}, {"event": "note", "text": "ÄÖÜ " * 12})
        first, second = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(first + second[:n])
        write_log(Path(folder), {"event": "resume", "step": 1}, {"event": "step", "step": 2})
        assert [event["event"] for event in read_log(path)] == ["step", "resume", "step"]


def test_of_a_step_that_was_repeated_the_last_line_counts(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        {"event": "start", "name": "a", "steps": 3},
        {"event": "step", "step": 1, "loss": 3.0},
        {"event": "step", "step": 2, "loss": 9.0},
        {"event": "evaluate", "step": 2, "loss": 9.0},
        {"event": "step", "step": 5, "loss": 7.0},
        {"event": "evaluate", "step": 5, "loss": 1.0},
        {"event": "start", "name": "a", "steps": 3, "step": 1},
        {"event": "resume", "step": 1},
        {"event": "step", "step": 2, "loss": 2.0},
        {"event": "evaluate", "step": 2, "loss": 2.5},
        {"event": "evaluate", "step": 3, "loss": "nan"},
    )
    record = read_run(tmp_path)
    assert {step: event["loss"] for step, event in record.steps.items()} == {1: 3.0, 2: 2.0}
    assert record.last["step"] == 2
    assert record.best() == (2, 2.5)
    assert record.best("accuracy") is None
    assert record.state == "unfinished"
    write_log(tmp_path, {"event": "end", "step": 3, "reason": "done"})
    assert read_run(tmp_path / "run").state == "done"


def test_runs_are_found_beneath_a_folder(tmp_path: Path) -> None:
    for name in ("b", "a/c"):
        write_log(tmp_path / name, {"event": "start", "name": name})
    assert [run.start["name"] for run in find_runs(tmp_path)] == ["a/c", "b"]
    with pytest.raises(InputError, match=r"holds no run: there is no .*log.jsonl"):
        read_run(tmp_path)


def record(name: str, losses: list[float], measured: list[float]) -> RunRecord:
    steps = {i + 1: {"step": i + 1, "loss": loss} for i, loss in enumerate(losses)}
    evaluations = {10 * i: {"step": 10 * i, "loss": loss} for i, loss in enumerate(measured)}
    return RunRecord(Path("runs") / "x", {"name": name}, steps, evaluations, "done")


@given(
    names=st.lists(st.text(max_size=20), min_size=1, max_size=6, unique=True),
    losses=st.lists(NUMBERS, max_size=12),
    measured=st.lists(NUMBERS, max_size=4),
    metric=st.just("loss"),
)
def test_a_picture_is_well_formed_whatever_runs_are_called_and_lost(
    names: list[str], losses: list[float], measured: list[float], metric: str
) -> None:
    runs = [record(name, losses, measured) for name in names]
    if not any(isfinite(value) for value in losses + measured):
        with pytest.raises(InputError, match="no 'loss' in "):
            plot_runs(runs, metric)
        return
    picture = plot_runs(runs, metric)
    root = ElementTree.fromstring(picture.encode())
    assert root.tag == f"{SVG}svg"
    keys = ("x", "y", "cx", "cy", "y1", "points")
    places = [part.attrib[key] for part in root.iter() for key in keys if key in part.attrib]
    assert all(isfinite(float(number)) for place in places for number in place.replace(",", " ").split())
    shown = [text.text or "" for text in root.iter(f"{SVG}text")]
    for name in names:
        plain = name.isprintable() and name.strip() and "\ufffd" not in name
        assert not plain or name in shown


def test_runs_of_one_name_are_called_by_their_folders() -> None:
    runs = [replace(record("same", [1.0, 2.0], []), path=Path("runs") / folder) for folder in ("one", "two")]
    shown = [text.text for text in ElementTree.fromstring(plot_runs(runs)).iter(f"{SVG}text")]
    assert {"one", "two"} <= set(shown)
    assert "same" not in shown


def test_fault_33_a_name_is_text_and_nothing_else() -> None:
    name = '</text><script>alert("1")</script>&amp;\x00\x1b\ud800'
    picture = plot_runs([record(name, [1.0, 2.0], [1.5])])
    root = ElementTree.fromstring(picture)
    assert not list(root.iter(f"{SVG}script"))
    assert name[:-3] + "\ufffd" * 3 in [text.text for text in root.iter(f"{SVG}text")]
    with pytest.raises(InputError, match=r"no '<b>' in runs/x; their evaluations hold loss, step"):
        plot_runs([record("a", [1.0], [1.5])], "<b>")


def test_a_run_with_one_point_is_a_dot() -> None:
    root = ElementTree.fromstring(plot_runs([record("a", [4.0], [])]))
    assert not list(root.iter(f"{SVG}polyline"))
    assert len(list(root.iter(f"{SVG}circle"))) == 2  # the other stands beside the name


def test_the_curve_goes_where_the_numbers_say() -> None:
    """Down is down: a lower loss stands lower, a later step further right."""
    picture = plot_runs([record("a", [4.0, 2.0, 1.0, 3.0], [])])
    (line,) = ElementTree.fromstring(picture).iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert sorted(range(4), key=lambda i: -points[i][1]) == [2, 1, 3, 0]
    assert all(0 <= x <= 760 and 0 <= y <= 420 for x, y in points)


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "step", "step": "3", "loss": 1.0}',
        '{"event": "step", "loss": 1.0}',
        '{"event": "step", "step": -1}',
        '{"event": "step", "step": true}',
        '{"event": "step", "step": 3, "loss": "low"}',
        '{"event": "step", "step": 3, "loss": [1.0]}',
        '{"event": "step", "step": 3, "tokens_per_second": {"a": 1}}',
        '{"event": "step", "step": 3, "seconds": 1e999}',
        '{"event": "evaluate", "step": 3, "loss": 1' + "0" * 400 + "}",
        '{"event": "start", "name": ["x"], "steps": 9}',
        '{"event": "start", "name": "\\ud800"}',
        '{"event": "start", "parameters": 1' + "0" * 400 + "}",
        '{"event": ["step"], "step": 3}',
        '{"event": null}',
        "[" * 100_000,
        '{"event":' * 100_000,
        "9" * 5000,
        "NaN",
        "\0",
        "x" * (1 << 21),
    ],
)
def test_a_line_that_we_would_not_have_written_hides_no_run(tmp_path: Path, line: str) -> None:
    events = [{"event": "start", "name": "x", "steps": 9}, {"event": "step", "step": 1, "loss": 2.0}]
    for name in ("a", "b"):
        write_log(tmp_path / name, *events)
    with (tmp_path / "a" / "run" / "log.jsonl").open("a") as file:
        file.write(line + "\n")
    write_log(tmp_path / "a", {"event": "evaluate", "step": 1, "loss": 1.5})
    first, second = find_runs(tmp_path)
    assert (first.start, first.steps) == (second.start, second.steps)
    assert first.best() == (1, 1.5)
    assert first.state == "unfinished"
    ElementTree.fromstring(plot_runs([first, second]))


@pytest.mark.parametrize("values", [[0.0, 5e-324], [1e16, 1e16 + 2], [-1e99, 1e99], [1e-200, 2e-200], [7.0, 7.0]])
def test_numbers_of_any_size_are_drawn(values: list[float]) -> None:
    ElementTree.fromstring(plot_runs([record("x", values, values)]))


RIGHT = {"event": "step", "step": 3, "steps": 9, "parameters": 7, "name": "a", "unit": "tokens", "reason": "done",
         "tokens_per_second": 1.5, "seconds": 2, "loss": 0.5}  # fmt: skip
WRONG = [("event", 3), ("event", None), ("step", None), ("step", -1), ("step", 1.5), ("step", True), ("steps", "9"),
         ("parameters", -7), ("name", 3), ("unit", []), ("reason", {}), ("tokens_per_second", "nan"),
         ("tokens_per_second", True), ("seconds", "inf"), ("seconds", []), ("loss", "nothing"),
         ("loss", [1])]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_an_event_that_nobody_could_rely_on_is_left_out(key: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(json.dumps(event) + "\n" for event in (RIGHT, RIGHT | {key: value}, RIGHT)))
    assert list(read_log(tmp_path / "log")) == [RIGHT, RIGHT]


@pytest.mark.parametrize("change", [{"loss": "nan"}, {"loss": "inf"}, {"loss": "-inf"}, {"more": []}, {"name": None},
                                    {"event": "note", "step": None}, {"event": "evaluate"}])  # fmt: skip
def test_an_event_with_what_our_own_have_is_read(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "log").write_text(json.dumps(RIGHT | change) + "\n")
    assert list(read_log(tmp_path / "log")) == [RIGHT | change]
