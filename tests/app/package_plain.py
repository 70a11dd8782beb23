"""Trains the model of examples/bring_your_model.py with plain torch, in one process: the losses of
its steps as a JSON list. Arguments: the folder of the example, the number of steps."""
import json
import sys

sys.path.insert(0, sys.argv[1])

import bring_your_model as example
import torch
import torch.nn.functional as F

from tenuto._model import build


def main():
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*build(example.model, 1))
    matrices = [one for one in model.parameters() if one.dim() > 1]
    vectors = [one for one in model.parameters() if one.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=0.003, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    micros = example.CONFIG["parallel"]["pipelines"] * example.CONFIG["parallel"]["micros"]
    for step in range(int(sys.argv[2])):
        optimizer.zero_grad()
        total = 0.0
        for micro in range(micros):
            inputs, targets = example.batch(1, step, micro)
            loss = F.cross_entropy(model(inputs), targets)
            (loss / micros).backward()
            total += loss.item() / micros
        optimizer.step()
        losses.append(total)
    print(json.dumps(losses))


main()
