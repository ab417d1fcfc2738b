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
    from cutaway.inside.attribution.by_gradient import gradient_x_input as gradient_x_input
    from cutaway.inside.attribution.by_gradient import integrated_gradients as integrated_gradients
    from cutaway.inside.attribution.deletion_curve import DeletionCurve as DeletionCurve
    from cutaway.inside.attribution.deletion_curve import deletion_curve as deletion_curve
    from cutaway.inside.attribution.explain import explain_blank as explain_blank
    from cutaway.inside.attribution.explain import explain_image as explain_image
    from cutaway.inside.attribution.explain import explain_label as explain_label
    from cutaway.inside.attribution.explain import explain_next as explain_next
    from cutaway.inside.attribution.explain import explain_translation as explain_translation
    from cutaway.inside.attribution.result import Attribution as Attribution
    from cutaway.inside.attribution.result import token_names as token_names
    from cutaway.inside.attribution.rollout import attention_rollout as attention_rollout
    from cutaway.inside.attribution.rollout import value_weighted as value_weighted
    from cutaway.inside.circuits.alignment_heads import alignment_heads as alignment_heads
    from cutaway.inside.circuits.circuit import Circuit as Circuit
    from cutaway.inside.circuits.circuit import completeness as completeness
    from cutaway.inside.circuits.circuit import faithfulness as faithfulness
    from cutaway.inside.circuits.circuit import minimality as minimality
    from cutaway.inside.circuits.circuit_task import CircuitTask as CircuitTask
    from cutaway.inside.circuits.circuit_task import circuit_task as circuit_task
    from cutaway.inside.circuits.coreference import accuracy_without_heads as accuracy_without_heads
    from cutaway.inside.circuits.coreference import coreference_heads as coreference_heads
    from cutaway.inside.circuits.edges import find_edges as find_edges
    from cutaway.inside.circuits.find import faithfulness_curve as faithfulness_curve
    from cutaway.inside.circuits.find import find_circuit as find_circuit
    from cutaway.inside.circuits.find import grow_circuit as grow_circuit
    from cutaway.inside.circuits.head_scores import HeadScores as HeadScores
    from cutaway.inside.circuits.head_scores import attention_between as attention_between
    from cutaway.inside.circuits.head_scores import attention_patterns as attention_patterns
    from cutaway.inside.circuits.induction import induction_heads as induction_heads
    from cutaway.inside.circuits.induction import induction_over_training as induction_over_training
    from cutaway.inside.circuits.induction import repeated_tokens as repeated_tokens
    from cutaway.inside.circuits.ioi import IOI_TEMPLATES as IOI_TEMPLATES
    from cutaway.inside.circuits.ioi import IoiTemplates as IoiTemplates
    from cutaway.inside.circuits.ioi import ioi_prompts as ioi_prompts
    from cutaway.inside.circuits.ioi_head_scores import ioi_head_scores as ioi_head_scores
    from cutaway.inside.circuits.ioi_head_scores import ioi_role as ioi_role
    from cutaway.inside.description import Description as Description
    from cutaway.inside.description import describe as describe
    from cutaway.inside.patching.ablation import ablate_sweep as ablate_sweep
    from cutaway.inside.patching.activations import mean_activations as mean_activations
    from cutaway.inside.patching.activations import record_activations as record_activations
    from cutaway.inside.patching.estimate import compare_sweeps as compare_sweeps
    from cutaway.inside.patching.estimate import estimate_sweep as estimate_sweep
    from cutaway.inside.patching.interventions import Ablate as Ablate
    from cutaway.inside.patching.interventions import Add as Add
    from cutaway.inside.patching.interventions import Patch as Patch
    from cutaway.inside.patching.interventions import intervene as intervene
    from cutaway.inside.patching.metrics import Kl as Kl
    from cutaway.inside.patching.metrics import Logit as Logit
    from cutaway.inside.patching.metrics import LogitDifference as LogitDifference
    from cutaway.inside.patching.metrics import LogProbability as LogProbability
    from cutaway.inside.patching.metrics import Probability as Probability
    from cutaway.inside.patching.metrics import last_real as last_real
    from cutaway.inside.patching.paths import patch_paths as patch_paths
    from cutaway.inside.patching.place import Place as Place
    from cutaway.inside.patching.sweep import Sweep as Sweep
    from cutaway.inside.patching.sweep import patch_sweep as patch_sweep
    from cutaway.inside.presets.table import check_circuit as check_circuit
    from cutaway.inside.presets.table import circuit as circuit
    from cutaway.inside.question import Question as Question
    from cutaway.inside.questions import ask_blank as ask_blank
    from cutaway.inside.questions import ask_image as ask_image
    from cutaway.inside.questions import ask_label as ask_label
    from cutaway.inside.questions import ask_next_word as ask_next_word
    from cutaway.inside.questions import ask_translation as ask_translation
    from cutaway.inside.reports.axes import token_words as token_words
    from cutaway.inside.reports.circuit_pictures import short_name as short_name
    from cutaway.inside.reports.circuit_report import CircuitReport as CircuitReport
    from cutaway.inside.reports.circuit_report import CircuitTestReport as CircuitTestReport
    from cutaway.inside.reports.induction_report import induction_report as induction_report
    from cutaway.inside.reports.inspect import inspect as inspect
    from cutaway.inside.reports.inspect import inspect_sentences as inspect_sentences
    from cutaway.inside.reports.inspection import Inspection as Inspection
    from cutaway.inside.reports.inspection import Inspections as Inspections
    from cutaway.inside.reports.lens_report import LensReport as LensReport
    from cutaway.inside.reports.lens_report import lens as lens
    from cutaway.inside.reports.patch_report import PatchReport as PatchReport
    from cutaway.inside.reports.patch_report import patch as patch
    from cutaway.inside.reports.report import Report as Report
    from cutaway.inside.reports.to_picture import to_picture as to_picture
    from cutaway.inside.residual.logit_lens import Lens as Lens
    from cutaway.inside.residual.logit_lens import logit_lens as logit_lens
    from cutaway.inside.residual.steering import Steering as Steering
    from cutaway.inside.residual.stream import LogitDecomposition as LogitDecomposition
    from cutaway.inside.residual.stream import ResidualDecomposition as ResidualDecomposition
    from cutaway.inside.residual.stream import decompose_residual as decompose_residual
    from cutaway.inside.residual.tuned_lens import TunedLens as TunedLens
    from cutaway.inside.residual.tuned_lens import kl_by_layer as kl_by_layer
    from cutaway.inside.residual.tuned_lens import train_tuned_lens as train_tuned_lens
    from cutaway.inside.word_vectors import WordVectors as WordVectors

__getattr__, __dir__ = lazy_names(__name__)
