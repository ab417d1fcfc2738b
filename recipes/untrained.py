"""The same network with the weights that it had before training: what did pre-training buy?

python recipes/untrained.py build/cloze build/cloze-untrained
cutaway train recipes/glue-rte.toml --set model.start=build/cloze-untrained --out build/rte-untrained
"""

import sys

import torch

import cutaway

folder, out = sys.argv[1:]
torch.manual_seed(0)
model = cutaway.load(folder)
model.initialise()
cutaway.save(model, out, tokenizer=cutaway.load_tokenizer(folder))
