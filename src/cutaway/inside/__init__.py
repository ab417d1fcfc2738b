"""Inside a model: what its parts do while it answers.

    report = inside.inspect(model, tokenizer, "The ship")            # print(report), report.save("page.html")
    stream = inside.decompose_residual(model, ids)                   # what each part adds to the residual stream
    lens = inside.logit_lens(model, ids)                             # what each layer would answer
    found = inside.explain_next(model, tokenizer, "The ship")        # attribution: integrated gradients, rollout
    sweep = inside.patch_sweep(model, clean, corrupted, metric)      # activation patching, place by place
    circuit = inside.find_circuit(task, "names", sizes=[10, 20])     # the few heads that do a task
    inside.to_picture(lens, tokenizer, ids).save("lens.html")

The rooms: residual, attribution, patching and circuits; `reports` has the calls of the commands `inspect`, `lens`,
`patch` and `circuit`. Values are watched and edited by name with `cutaway.watch` and `cutaway.edit`.
"""

from typing import TYPE_CHECKING

from cutaway.lazy import lazy_names

if TYPE_CHECKING:
    from cutaway.inside.attribution.by_gradient import gradient_x_input, integrated_gradients
    from cutaway.inside.attribution.deletion_curve import DeletionCurve, deletion_curve
    from cutaway.inside.attribution.explain import (
        explain_blank,
        explain_image,
        explain_label,
        explain_next,
        explain_translation,
    )
    from cutaway.inside.attribution.result import Attribution, token_names
    from cutaway.inside.attribution.rollout import attention_rollout, value_weighted
    from cutaway.inside.circuits.alignment_heads import alignment_heads
    from cutaway.inside.circuits.circuit import Circuit, completeness, faithfulness, minimality
    from cutaway.inside.circuits.circuit_task import CircuitTask, circuit_task
    from cutaway.inside.circuits.coreference import accuracy_without_heads, coreference_heads
    from cutaway.inside.circuits.edges import find_edges
    from cutaway.inside.circuits.find import faithfulness_curve, find_circuit, grow_circuit
    from cutaway.inside.circuits.head_scores import HeadScores, attention_between, attention_patterns
    from cutaway.inside.circuits.induction import induction_heads, induction_over_training, repeated_tokens
    from cutaway.inside.circuits.ioi import IOI_TEMPLATES, IoiTemplates, ioi_head_scores, ioi_prompts, ioi_role
    from cutaway.inside.description import Description, describe
    from cutaway.inside.patching.ablation import ablate_sweep
    from cutaway.inside.patching.estimate import compare_sweeps, estimate_sweep
    from cutaway.inside.patching.interventions import (
        Ablate,
        Add,
        Patch,
        intervene,
        mean_activations,
        record_activations,
    )
    from cutaway.inside.patching.metrics import Kl, Logit, LogitDifference, LogProbability, Probability, last_real
    from cutaway.inside.patching.paths import patch_paths
    from cutaway.inside.patching.place import Place
    from cutaway.inside.patching.sweep import Sweep, patch_sweep
    from cutaway.inside.presets.table import check_circuit, circuit
    from cutaway.inside.question import Question
    from cutaway.inside.questions import ask_blank, ask_image, ask_label, ask_next_word, ask_translation
    from cutaway.inside.reports.axes import token_words
    from cutaway.inside.reports.circuit_pictures import short_name
    from cutaway.inside.reports.circuit_report import CircuitReport, CircuitTestReport
    from cutaway.inside.reports.induction_report import induction_report
    from cutaway.inside.reports.inspect import inspect, inspect_sentences
    from cutaway.inside.reports.inspection import Inspection, Inspections
    from cutaway.inside.reports.lens_report import LensReport, lens
    from cutaway.inside.reports.patch_report import PatchReport, patch
    from cutaway.inside.reports.report import Report
    from cutaway.inside.reports.to_picture import to_picture
    from cutaway.inside.residual.logit_lens import Lens, logit_lens
    from cutaway.inside.residual.steering import Steering
    from cutaway.inside.residual.stream import LogitDecomposition, ResidualDecomposition, decompose_residual
    from cutaway.inside.residual.tuned_lens import TunedLens, kl_by_layer, train_tuned_lens
    from cutaway.inside.word_vectors import WordVectors

__all__ = [
    "IOI_TEMPLATES",
    "Ablate",
    "Add",
    "Attribution",
    "Circuit",
    "CircuitReport",
    "CircuitTask",
    "CircuitTestReport",
    "DeletionCurve",
    "Description",
    "HeadScores",
    "Inspection",
    "Inspections",
    "IoiTemplates",
    "Kl",
    "Lens",
    "LensReport",
    "LogProbability",
    "Logit",
    "LogitDecomposition",
    "LogitDifference",
    "Patch",
    "PatchReport",
    "Place",
    "Probability",
    "Question",
    "Report",
    "ResidualDecomposition",
    "Steering",
    "Sweep",
    "TunedLens",
    "WordVectors",
    "ablate_sweep",
    "accuracy_without_heads",
    "alignment_heads",
    "ask_blank",
    "ask_image",
    "ask_label",
    "ask_next_word",
    "ask_translation",
    "attention_between",
    "attention_patterns",
    "attention_rollout",
    "check_circuit",
    "circuit",
    "circuit_task",
    "compare_sweeps",
    "completeness",
    "coreference_heads",
    "decompose_residual",
    "deletion_curve",
    "describe",
    "estimate_sweep",
    "explain_blank",
    "explain_image",
    "explain_label",
    "explain_next",
    "explain_translation",
    "faithfulness",
    "faithfulness_curve",
    "find_circuit",
    "find_edges",
    "gradient_x_input",
    "grow_circuit",
    "induction_heads",
    "induction_over_training",
    "induction_report",
    "inspect",
    "inspect_sentences",
    "integrated_gradients",
    "intervene",
    "ioi_head_scores",
    "ioi_prompts",
    "ioi_role",
    "kl_by_layer",
    "last_real",
    "lens",
    "logit_lens",
    "mean_activations",
    "minimality",
    "patch",
    "patch_paths",
    "patch_sweep",
    "record_activations",
    "repeated_tokens",
    "short_name",
    "to_picture",
    "token_names",
    "token_words",
    "train_tuned_lens",
    "value_weighted",
]

HOMES = {
    "Ablate": "cutaway.inside.patching.interventions",
    "Add": "cutaway.inside.patching.interventions",
    "Attribution": "cutaway.inside.attribution.result",
    "Circuit": "cutaway.inside.circuits.circuit",
    "CircuitReport": "cutaway.inside.reports.circuit_report",
    "CircuitTask": "cutaway.inside.circuits.circuit_task",
    "CircuitTestReport": "cutaway.inside.reports.circuit_report",
    "DeletionCurve": "cutaway.inside.attribution.deletion_curve",
    "Description": "cutaway.inside.description",
    "HeadScores": "cutaway.inside.circuits.head_scores",
    "IOI_TEMPLATES": "cutaway.inside.circuits.ioi",
    "Inspection": "cutaway.inside.reports.inspection",
    "Inspections": "cutaway.inside.reports.inspection",
    "IoiTemplates": "cutaway.inside.circuits.ioi",
    "Kl": "cutaway.inside.patching.metrics",
    "Lens": "cutaway.inside.residual.logit_lens",
    "LensReport": "cutaway.inside.reports.lens_report",
    "LogProbability": "cutaway.inside.patching.metrics",
    "Logit": "cutaway.inside.patching.metrics",
    "LogitDecomposition": "cutaway.inside.residual.stream",
    "LogitDifference": "cutaway.inside.patching.metrics",
    "Patch": "cutaway.inside.patching.interventions",
    "PatchReport": "cutaway.inside.reports.patch_report",
    "Place": "cutaway.inside.patching.place",
    "Probability": "cutaway.inside.patching.metrics",
    "Question": "cutaway.inside.question",
    "Report": "cutaway.inside.reports.report",
    "ResidualDecomposition": "cutaway.inside.residual.stream",
    "Steering": "cutaway.inside.residual.steering",
    "Sweep": "cutaway.inside.patching.sweep",
    "TunedLens": "cutaway.inside.residual.tuned_lens",
    "WordVectors": "cutaway.inside.word_vectors",
    "ablate_sweep": "cutaway.inside.patching.ablation",
    "accuracy_without_heads": "cutaway.inside.circuits.coreference",
    "alignment_heads": "cutaway.inside.circuits.alignment_heads",
    "ask_blank": "cutaway.inside.questions",
    "ask_image": "cutaway.inside.questions",
    "ask_label": "cutaway.inside.questions",
    "ask_next_word": "cutaway.inside.questions",
    "ask_translation": "cutaway.inside.questions",
    "attention_between": "cutaway.inside.circuits.head_scores",
    "attention_patterns": "cutaway.inside.circuits.head_scores",
    "attention_rollout": "cutaway.inside.attribution.rollout",
    "check_circuit": "cutaway.inside.presets.table",
    "circuit": "cutaway.inside.presets.table",
    "circuit_task": "cutaway.inside.circuits.circuit_task",
    "compare_sweeps": "cutaway.inside.patching.estimate",
    "completeness": "cutaway.inside.circuits.circuit",
    "coreference_heads": "cutaway.inside.circuits.coreference",
    "decompose_residual": "cutaway.inside.residual.stream",
    "deletion_curve": "cutaway.inside.attribution.deletion_curve",
    "describe": "cutaway.inside.description",
    "estimate_sweep": "cutaway.inside.patching.estimate",
    "explain_blank": "cutaway.inside.attribution.explain",
    "explain_image": "cutaway.inside.attribution.explain",
    "explain_label": "cutaway.inside.attribution.explain",
    "explain_next": "cutaway.inside.attribution.explain",
    "explain_translation": "cutaway.inside.attribution.explain",
    "faithfulness": "cutaway.inside.circuits.circuit",
    "faithfulness_curve": "cutaway.inside.circuits.find",
    "find_circuit": "cutaway.inside.circuits.find",
    "find_edges": "cutaway.inside.circuits.edges",
    "gradient_x_input": "cutaway.inside.attribution.by_gradient",
    "grow_circuit": "cutaway.inside.circuits.find",
    "induction_heads": "cutaway.inside.circuits.induction",
    "induction_over_training": "cutaway.inside.circuits.induction",
    "induction_report": "cutaway.inside.reports.induction_report",
    "inspect": "cutaway.inside.reports.inspect",
    "inspect_sentences": "cutaway.inside.reports.inspect",
    "integrated_gradients": "cutaway.inside.attribution.by_gradient",
    "intervene": "cutaway.inside.patching.interventions",
    "ioi_head_scores": "cutaway.inside.circuits.ioi",
    "ioi_prompts": "cutaway.inside.circuits.ioi",
    "ioi_role": "cutaway.inside.circuits.ioi",
    "kl_by_layer": "cutaway.inside.residual.tuned_lens",
    "last_real": "cutaway.inside.patching.metrics",
    "lens": "cutaway.inside.reports.lens_report",
    "logit_lens": "cutaway.inside.residual.logit_lens",
    "mean_activations": "cutaway.inside.patching.interventions",
    "minimality": "cutaway.inside.circuits.circuit",
    "patch": "cutaway.inside.reports.patch_report",
    "patch_paths": "cutaway.inside.patching.paths",
    "patch_sweep": "cutaway.inside.patching.sweep",
    "record_activations": "cutaway.inside.patching.interventions",
    "repeated_tokens": "cutaway.inside.circuits.induction",
    "short_name": "cutaway.inside.reports.circuit_pictures",
    "to_picture": "cutaway.inside.reports.to_picture",
    "token_names": "cutaway.inside.attribution.result",
    "token_words": "cutaway.inside.reports.axes",
    "train_tuned_lens": "cutaway.inside.residual.tuned_lens",
    "value_weighted": "cutaway.inside.attribution.rollout",
}
__getattr__, __dir__ = lazy_names(__name__, HOMES)
