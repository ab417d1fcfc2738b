"""The run log as TensorBoard reads it. An optional extra: `pip install 'cutaway[tensorboard]'`."""

from pathlib import Path
from typing import Any

from cutaway.errors import MissingExtra
from cutaway.files import damage


class TensorBoard:
    """Listens to a run and writes every number of its steps and evaluations."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("tensorboard", "tensorboard") from None
        self.folder = folder
        with damage(folder, "cannot be written"):  # without its name, a full disk would be taken for that of stdout
            self.writer: Any = SummaryWriter(str(folder))

    def __call__(self, event: dict[str, Any]) -> None:
        with damage(self.folder, "cannot be written"):
            self._write(event)

    def _write(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind in ("step", "evaluate"):
            for name, value in event.items():
                if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("step", "steps"):
                    self.writer.add_scalar(f"{'train' if kind == 'step' else 'valid'}/{name}", value, event["step"])
            for i, sample in enumerate(event.get("samples", [])):
                self.writer.add_text(f"sample/{i}", sample, event["step"])
        if kind in ("evaluate", "checkpoint", "end"):
            self.writer.flush()
