"""What needs a GPU, left out where there is none."""

import torch

if not torch.cuda.is_available():
    collect_ignore_glob = ["*"]
