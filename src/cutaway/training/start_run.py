"""A run at step 0: the model with its adapters, the optimizer, and compiled or recorded passes."""

import torch

from cutaway.model.model import Model
from cutaway.training.datasets.training_data import Note, TrainingData
from cutaway.training.loop import Run, loss_function, recompute_activations
from cutaway.training.optimizer import Optimizer
from cutaway.training.parallel import ProcessGroup
from cutaway.training.recipe import Recipe
from cutaway.training.starting_weights import refuse_long_rows, starting_model


def start_run(
    recipe: Recipe, dataset: TrainingData, group: ProcessGroup, device: torch.device, note: Note
) -> tuple[Run, list[str]]:
    """The run, and the names of the parameters with new weights."""
    t = recipe.train
    torch.manual_seed(recipe.seed)
    model, new = starting_model(recipe, dataset.model_settings, device)
    refuse_long_rows(recipe, dataset, model)
    _change_parts(recipe, model)
    model.train()
    group.same_start(model)
    loss_of = loss_function(dataset.objective)
    autocast = torch.bfloat16 if t.precision == "bf16" else None
    if t.compile not in ("no", "blocks"):
        from cutaway.training.compile import compile_loss

        loss_of = compile_loss(loss_of, t.compile)
    run = Run(
        model, dataset.objective, Optimizer(model, recipe.optimizer), loss_of, autocast=autocast,
        clip=recipe.optimizer.clip, spike=t.spike, group=group, seed=recipe.seed,
    )  # fmt: skip
    if t.ema:
        from cutaway.training.average import MovingAverage

        run.average = MovingAverage(model, t.ema)
    if uses_cuda_graphs(recipe, device, note):
        from cutaway.training.cuda_graphs import Captured

        run.captured = Captured(model, loss_of, autocast)
    return run, new


def _change_parts(recipe: Recipe, model: Model) -> None:
    """LoRA, frozen parameters, compiled blocks, activation checkpointing."""
    t = recipe.train
    if t.lora_rank or t.freeze:
        from cutaway.training.lora import add_lora, freeze

        if t.lora_rank:
            add_lora(model, t.lora_rank, t.lora_alpha, t.lora_parts)
        freeze(model, t.freeze)
    if t.compile == "blocks":
        from cutaway.training.compile import compile_blocks

        compile_blocks(model)
    if t.checkpointing:
        recompute_activations(model)


def uses_cuda_graphs(recipe: Recipe, device: torch.device, note: Note) -> bool:
    """Whether the passes are recorded as CUDA graphs."""
    wanted = recipe.train.capture and device.type == "cuda"
    if wanted and recipe.train.checkpointing:  # it saves the state of the random numbers, which a graph cannot read
        note("train.checkpointing: the passes are not recorded as CUDA graphs, so small models run slower")
    return wanted and not recipe.train.checkpointing
