"""Measuring: a mean over all examples, the same every time, and a model that goes on training as before."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.toy_recipes import KINDS, toy
from sklearn.metrics import accuracy_score, f1_score

from cutaway.decoding.single_pass import Row, first_tokens, rows_of
from cutaway.errors import ConfigError
from cutaway.model.model import Model
from cutaway.objectives import IGNORED
from cutaway.objectives.objective import as_tensors
from cutaway.training.datasets import prepare
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.starting_weights import starting_model
from cutaway.training.validation import bits, samples, scores, validate


def case(kind: str, folder: Path, **more: Any) -> tuple[TrainingData, Model]:
    """Weights large enough that scores differ, and dropout, which must be off when something is measured."""
    recipe = toy(kind, folder, model={"dropout": 0.3}, **more)
    dataset = prepare(recipe, None)
    model, _ = starting_model(recipe, dataset.model_settings, torch.device("cpu"))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return dataset, model.train()


@pytest.mark.parametrize("kind", KINDS)
def test_every_evaluation_asks_the_same_and_leaves_no_trace(kind: str, tmp_path: Path) -> None:
    """The hidden words and cut spans are the same each time, or no two evaluations could be compared."""
    dataset, model = case(kind, tmp_path)
    assert dataset.valid is not None
    before = torch.get_rng_state()
    first, again = (validate(model, dataset.objective, dataset.valid) for _ in range(2))
    assert first == again
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_every_batch_is_read_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores come with the loss: no second pass through the model."""
    dataset, model = case(kind, tmp_path)
    assert dataset.valid is not None
    passes = []
    hidden = model.hidden
    monkeypatch.setattr(model, "hidden", lambda *inputs, **more: passes.append(1) or hidden(*inputs, **more))
    validate(model, dataset.objective, dataset.valid)
    assert len(passes) == dataset.valid.steps


def test_a_model_that_is_not_in_training_is_not_in_training_afterwards(tmp_path: Path) -> None:
    dataset, model = case("classify", tmp_path)
    assert dataset.valid is not None
    model.eval()
    validate(model, dataset.objective, dataset.valid)
    samples(model, dataset, 1, "")
    assert not any(part.training for part in model.modules())


def test_a_measurement_that_fails_leaves_the_model_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, model = case("classify", tmp_path)
    assert dataset.valid is not None

    def fail(*inputs: Any, **more: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(model, "hidden", fail)
    with pytest.raises(MemoryError):
        validate(model, dataset.objective, dataset.valid)
    with pytest.raises(MemoryError):
        samples(model, dataset, 3, "")
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("auxiliary", [0.0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_what_can_be_measured_is_known_before_it_is(kind: str, auxiliary: float, tmp_path: Path) -> None:
    more = {"objective": {"auxiliary": auxiliary}} if kind in ("classify", "tag", "regress") else {}
    dataset, model = case(kind, tmp_path, **more)
    assert dataset.valid is not None
    found = validate(model, dataset.objective, dataset.valid)
    assert list(found | bits(found, dataset)) == dataset.metrics()
    for metric in dataset.metrics():
        prepare(toy(kind, tmp_path, evaluate={"metric": metric}, **more), None)
    known = f"'{toy(kind, tmp_path).objective.kind}'; measured are {', '.join(dataset.metrics())}$"
    with pytest.raises(ConfigError, match=rf"evaluate.metric='bleu' is not measured for objective {known}"):
        prepare(toy(kind, tmp_path, evaluate={"metric": "bleu"}, **more), None)


def test_the_loss_is_the_mean_over_examples_not_over_batches(tmp_path: Path) -> None:
    """Batches of one row and of all rows: the same, though rows have between 2 and 25 targets."""
    found = []
    for rows in (1, 50):
        dataset, _ = case("translate", tmp_path, train={"rows": rows, "tokens": 4096}, data={"valid_share": 0.5})
        torch.manual_seed(0)
        _, model = case("translate", tmp_path)
        assert dataset.valid is not None
        assert (dataset.valid.steps == dataset.valid.n_examples) == (rows == 1)
        found.append(validate(model, dataset.objective, dataset.valid)["loss"])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_several_terms_are_told_apart_and_weighed(tmp_path: Path) -> None:
    dataset, model = case("classify", tmp_path, objective={"auxiliary": 0.25})
    assert dataset.valid is not None
    found = validate(model, dataset.objective, dataset.valid)
    assert found["loss"] == pytest.approx(found["loss_label"] + 0.25 * found["loss_auxiliary"])


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_classes_are_scored_as_scikit_learn_does(kind: str, tmp_path: Path) -> None:
    dataset, model = case(kind, tmp_path)
    assert dataset.valid is not None
    found = validate(model, dataset.objective, dataset.valid)
    model.eval()
    wanted, said, losses = [], [], []
    for step in range(dataset.valid.steps):
        batch = as_tensors(dataset.objective.prepare(dataset.valid(step), np.random.default_rng(0)))
        out = model(batch["ids"], real=batch["real"], segments=batch["segments"]).detach()
        there = batch["targets"] != IGNORED
        said += out.argmax(-1)[there].tolist()
        wanted += batch["targets"][there].tolist()
        losses += F.cross_entropy(out[there], batch["targets"][there], reduction="none").tolist()
    assert len(wanted) >= 12
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["accuracy"] == pytest.approx(accuracy_score(wanted, said))
    if kind == "classify":
        assert found["macro_f1"] == pytest.approx(f1_score(wanted, said, average="macro"))
    else:
        assert found["f1"] == pytest.approx(f1_score(wanted, said))


def test_bits_per_byte_are_counted_by_hand(tmp_path: Path) -> None:
    """A loss of ln 8 is three bits a token; at two bytes a token that is 1.5 bits per byte."""
    dataset, _ = case("next_token", tmp_path)
    dataset.bytes_per_token = 2.0
    assert bits({"loss": np.log(8)}, dataset) == pytest.approx({"perplexity": 8.0, "bits_per_byte": 1.5})
    dataset.bytes_per_token = None
    assert bits({"loss": 1e4}, dataset) == pytest.approx({"perplexity": np.exp(100.0)})
    masked, _ = case("masked", tmp_path)
    assert bits({"loss": 1.0}, masked) == {}


def test_numbers_are_scored_by_correlation() -> None:
    said, wanted = np.array([[1.0], [2.0], [9.0], [3.0]]), np.array([1.0, 2.0, np.nan, 4.0])
    found = scores(said, wanted)
    assert found["spearman"] == pytest.approx(1.0)
    assert found["pearson"] == pytest.approx(np.corrcoef([1, 2, 3], [1, 2, 4])[0, 1])


def test_some_batches_alone_where_the_recipe_says_so(tmp_path: Path) -> None:
    dataset, model = case("images", tmp_path, train={"rows": 3})
    assert dataset.valid is not None
    assert dataset.valid.steps == 4
    some, whole = (validate(model, dataset.objective, dataset.valid, batches=n)["loss"] for n in (1, 0))
    assert some != whole
    assert validate(model, dataset.objective, dataset.valid, batches=99)["loss"] == whole


def test_some_batches_are_from_all_over_the_examples(tmp_path: Path) -> None:
    """A table's batches stand in the order of their lengths: the first ones would measure short rows alone."""
    dataset, model = case("translate", tmp_path, train={"tokens": 64}, data={"valid_share": 0.5})
    source = dataset.valid
    assert source is not None
    asked: list[int] = []

    class Asked:
        steps, n_examples = source.steps, source.n_examples

        def __call__(self, step: int) -> Any:
            asked.append(step)
            return source(step)

    validate(model, dataset.objective, Asked(), batches=4)
    assert asked == [i * source.steps // 4 for i in range(4)]
    assert source(asked[-1])["source"].shape[1] > source(3)["source"].shape[1]


# --- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "spans"])
def test_samples_are_few_and_short_and_the_same_every_time(kind: str, tmp_path: Path) -> None:
    dataset, model = case(kind, tmp_path)
    before = torch.get_rng_state()
    first, again = (samples(model, dataset, 3, "the cat") for _ in range(2))
    assert first == again
    assert len(first) == (1 if kind in ("next_token", "lines") else 3)
    assert len(set(first)) == len(first)
    assert all(0 < len(sample) < 400 for sample in first)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert samples(model, dataset, 0, "the cat") == []


@pytest.mark.parametrize("kind", ["classify", "pair", "regress", "tag", "images"])
def test_a_sample_of_labels_holds_the_text_the_truth_and_the_answer(kind: str, tmp_path: Path) -> None:
    """Whose sample it is, is found in the files; what the model says, by asking it about this row alone."""
    dataset, model = case(kind, tmp_path)
    shown = samples(model, dataset, 4, "")
    assert len(shown) == 4
    table = [line.split("\t") for line in (tmp_path / "table.tsv").read_text().splitlines()[1:]]
    column = {"regress": 3, "tag": 4}.get(kind, 2)
    truth = {f"{row[0]} / {row[1]}" if kind == "pair" else row[0]: row[column] for row in table}
    if kind == "images":
        truth = {f"picture {i}": str(i % 4) for i in range(50)}
    names = dataset.model_settings.get("labels")
    right = model.eval()
    for sample in shown:
        text, said = sample.removesuffix(")").split(" → ")
        answer, true = said.split(" (true: ")
        assert float(true) == pytest.approx(float(truth[text]), rel=1e-2) if kind == "regress" else true == truth[text]
        if kind == "images":
            assert answer in names
            continue
        assert dataset.tokenizer is not None
        row, places = _as_read(dataset, text.split(" / "))
        segments = torch.tensor([row.segments])
        scores = right(torch.tensor([row.ids]), segments=segments)[0].detach()
        if kind == "regress":
            assert float(answer) == pytest.approx(scores.item(), rel=2e-2)
        elif kind == "tag":
            assert answer == " ".join(names[int(scores[at].argmax())] for at in places)
        else:
            assert answer == names[int(scores.argmax())]


def _as_read(dataset: TrainingData, texts: list[str]) -> tuple[Row, list[int]]:
    assert dataset.tokenizer is not None
    if len(texts) == 2:
        return rows_of(dataset.tokenizer, [(texts[0], texts[1])], 24, as_trained=True)[0], []
    return first_tokens(dataset.tokenizer, texts[0].split(), 24, as_trained=True)


@pytest.mark.parametrize("kind", ["masked", "pretrain"])
def test_a_sample_of_blanks_holds_what_fills_them_and_what_was_there(kind: str, tmp_path: Path) -> None:
    dataset, model = case(kind, tmp_path)
    assert dataset.tokenizer is not None
    for sample in samples(model, dataset, 4, ""):
        text, said = sample.removesuffix(")").split(" → ")
        answer, true = (side.split(", ") for side in said.split(" (true: "))
        assert text.count("[MASK]") == len(answer) == len(true) >= 1
        assert all(word in dataset.tokenizer for word in (*answer, *true))


def test_a_model_that_knows_one_word_fills_all_blanks_with_it(tmp_path: Path) -> None:
    """A model that knows but one word says it everywhere."""
    dataset, model = case("masked", tmp_path)
    assert dataset.valid is not None
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    with torch.no_grad():
        model.head.words.bias[7] = 1.0  # type: ignore[union-attr, index, operator]
    assert dataset.tokenizer is not None
    word = dataset.tokenizer.decode([7])
    for sample in samples(model, dataset, 3, ""):
        answer = sample.split(" → ")[1].split(" (true: ")[0]
        assert set(answer.split(", ")) == {word}
