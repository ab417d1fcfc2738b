"""Which heads carry the indirect object? Found on some prompts, tested on others with other names and templates.

    python bench/ioi.py --model smollm2 --templates ioi_templates.json --out ioi.json --circuit circuit.json
    python bench/ioi.py --model build/models/books --templates ioi_templates.json
    python bench/ioi.py --model tiny --most 12 --shortlist 12

`smollm2` is SmolLM2-135M-Instruct from a package (tests/real/weights.py), in fp32; `tiny` is trained here, on our own
sentences, in half a minute (toys/names.py); anything else is a model folder. The file of templates has NAMES,
PLACES, OBJECTS and BABA_TEMPLATES, the lists of Wang et al. 2022 as JSON (redwoodresearch/Easy-Transformer on GitHub,
MIT); without one, our own few sentences serve. All heads are ranked by attribution patching, the best of them exactly,
and faithfulness is measured on both sets against size.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import cutaway
from cutaway.inside.circuits.circuit import completeness, faithfulness, minimality
from cutaway.inside.circuits.circuit_task import CircuitTask
from cutaway.inside.circuits.find import FoundCircuits, faithfulness_curve, find_circuit, grow_circuit
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.inside.circuits.ioi import IOI_TEMPLATES, IoiTemplates, ioi_prompts
from cutaway.inside.circuits.ioi_head_scores import ioi_head_scores, ioi_role

STEP, SHOWN = 5, 10
KEPT = 0.8  # of the logit difference
LOOKS = 0.25  # a head has the role that it scores highest in, if it scores so much


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--templates", type=Path)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--shortlist", type=int, default=40)
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--grow", type=int, default=0, help="also grow a circuit to so many heads: slower")
    parser.add_argument("--steps", type=int, default=400, help="of training, for --model tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--circuit", type=Path)
    asked = parser.parse_args()
    templates = IoiTemplates.read(asked.templates) if asked.templates else IOI_TEMPLATES
    if asked.model == "tiny":
        from cutaway.toys.names import train_names

        model, tokenizer = train_names(templates, steps=asked.steps)
        halves = (templates, templates)  # a name that it never saw means nothing to it: only the prompts differ
    else:
        path = _smollm2() if asked.model == "smollm2" else Path(asked.model)
        model, tokenizer = cutaway.load(path), cutaway.load_tokenizer(path)
        halves = templates.halves()
    sets = [
        ioi_prompts(tokenizer, asked.prompts, templates=half, seed=asked.seed + number)
        for number, half in enumerate(halves)
    ]
    told = Told(asked.out)
    told(
        model=asked.model, torch=torch.__version__, threads=torch.get_num_threads(), examples=[x.texts[0] for x in sets]
    )
    told(found_on=sets[0].answers(model).to_dict(), tested_on=sets[1].answers(model).to_dict())
    scores = ioi_head_scores(model, sets[0])  # type: ignore[arg-type]
    told(roles={role: each.best(5) for role, each in scores.items()})
    here, there = (prompts.task(model) for prompts in sets)
    told(whole=[x.whole.mean().item() for x in (here, there)], none=[x.none.mean().item() for x in (here, there)])
    ranked = find_circuit(here, "ioi", sizes=range(STEP, asked.most + 1, STEP), shortlist=asked.shortlist)
    told(ranked=report(ranked, there))
    by_size = sorted(ranked.worth, key=lambda node: -abs(ranked.worth[node]))
    told(largest={node: ranked.worth[node] for node in by_size[:SHOWN]})
    told(by_size=faithfulness_curve(there, by_size, [size for size in (10, 20, 30) if size <= asked.most]))
    size = ranked.smallest(KEPT)
    if size is not None:
        told(circuit=tested(ranked, size, scores, there, asked.circuit))
    if asked.grow:
        told(grown=report(grow_circuit(here, "ioi", to=asked.grow, by=STEP), there))


def tested(
    found: FoundCircuits, size: int, scores: dict[str, HeadScores], there: CircuitTask, path: Path | None
) -> dict[str, Any]:
    """The smallest circuit that keeps enough, with the role that each head scores highest in, on the other prompts."""
    roles = {node: ioi_role(node, scores, LOOKS) or "not known" for node in found.order[:size]}
    kept = found.circuit(size, task="indirect-object identification", roles=roles)
    if path:
        kept.save(path)
    complete = completeness(there, kept, [kept.nodes])
    return kept.to_dict() | {
        "faithfulness": faithfulness(there, kept),
        "model_without_it": complete.model[0],
        "minimality": minimality(there, kept),
    }


def report(found: FoundCircuits, there: CircuitTask) -> dict[str, Any]:
    return found.to_dict() | {
        "tested": {str(k): v for k, v in faithfulness_curve(there, found.order, found.curve).items()}
    }


class Told:
    """What was found so far, on paper and in the file."""

    def __init__(self, out: Path | None) -> None:
        self.out, self.all, self.began = out, {}, time.perf_counter()  # type: ignore[var-annotated]

    def __call__(self, **found: Any) -> None:
        self.all |= found | {"seconds": round(time.perf_counter() - self.began)}
        print(json.dumps(found, ensure_ascii=False), flush=True)
        if self.out:
            self.out.write_text(json.dumps(self.all, ensure_ascii=False, indent=1) + "\n")


def _smollm2() -> Path:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from helpers.real_weights import real_weights

    return real_weights("smollm2")


if __name__ == "__main__":
    main()
