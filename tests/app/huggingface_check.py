"""What huggingface_test.py asks of a Python with torch and transformers: a JSON value.

cut           how models that are cut differ from those that are not
plain KIND N  the losses of N steps of the example's model, trained by plain torch in one process,
              and the loss after them on the first micro-batch
read FOLDER   the loss of the model in a folder on the example's first micro-batch, and its names
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "examples"))

import huggingface as example
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GraniteConfig, LlamaConfig, OPTConfig

from tenuto import huggingface
from tenuto._model import Trace, build, ties_weights
from tenuto._stage import Stage

SEED = 1
SMALL = {"vocab_size": 48, "bos_token_id": 0, "eos_token_id": 0}
GPT2 = {"n_embd": 32, "n_layer": 4, "n_head": 2, "n_positions": 32, **SMALL}
BLOCKS = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, **SMALL}
# GPT2 has dropout.
CONFIGS = {"gpt2": GPT2Config(**GPT2), "gpt2 untied": GPT2Config(tie_word_embeddings=False, **GPT2),
           "llama": LlamaConfig(**BLOCKS)}
CUTS = ((0, 3, 6), (0, 2, 5, 6))


def uncut(config):
    torch.manual_seed(SEED)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def run(stages, inputs):
    """Computes the stages one after the other, each from tensors of its own: pairs of what each
    takes and gives."""
    passes = []
    for stage in stages:
        taken = tuple(one.detach().requires_grad_(one.is_floating_point()) for one in inputs)
        inputs = taken
        for index in range(stage.count):
            inputs = stage.run(index, inputs, True)
        passes.append((taken, inputs))
    return passes


def compare(config, cuts, inputs):
    """What differs between a cut model and the uncut one in a training pass."""
    ids = inputs[0]
    whole = uncut(config)
    torch.manual_seed(2)
    # A cache would lay out keys otherwise, and dropout then draws in another order.
    logits = whole(*inputs[:1], attention_mask=(*inputs, None)[1], use_cache=False).logits
    loss = huggingface.causal_loss(logits, ids)
    loss.backward()
    make = huggingface.from_config(config)
    layers = build(make, SEED)
    trace = Trace(layers, inputs)
    stages = [Stage(build(make, SEED), first, end, trace.cuts, huggingface.causal_loss)
              for first, end in zip(cuts, cuts[1:])]
    torch.manual_seed(2)
    passes = run(stages, inputs)
    own = stages[-1].loss(passes[-1][1], (ids,))
    own.backward()
    for (_, given), (taken, _) in reversed(list(zip(passes, passes[1:]))):
        given[0].backward(taken[0].grad)
    wrong = [] if torch.equal(logits, passes[-1][1][0]) else ["logits"]
    theirs = whole.loss_function(logits=logits, labels=ids, vocab_size=config.vocab_size)
    if not own.item() == loss.item() == theirs.item():
        wrong.append("loss")
    gradients = {}
    for card in (card for stage in stages for card in stage.cards):
        gradients.setdefault(card.name, []).append(card.tensor.grad)
    if [name for name, _ in whole.named_parameters()] != list(gradients):
        wrong.append(f"names: {list(gradients)}")
    tied = [name for name, parts in gradients.items() if len(parts) > 1]
    for name, parameter in whole.named_parameters():
        parts = gradients.get(name, [torch.zeros(())])
        # Two stages add up what the uncut model has added in another order.
        bound = 1e-6 * parameter.grad.abs().max().item() if name in tied else 0
        if (sum(parts) - parameter.grad).abs().max().item() > bound:
            wrong.append(name)
    expected = ["transformer.wte.weight"] if config.tie_word_embeddings else []
    if tied != expected or ties_weights(layers) != bool(expected):
        wrong.append(f"tied: {tied}")
    return wrong


def repeats(config):
    """Which of several micro-batches, whose shapes and masks come and come back, are not those of
    the uncut model, where a stage has all layers; and whether the layers share arguments."""
    whole, layers = uncut(config), build(huggingface.from_config(config), SEED)
    ids = torch.randint(48, (2, 9), generator=torch.Generator().manual_seed(4))
    masks = [torch.ones_like(ids), torch.ones_like(ids)]
    masks[0][0, :2], masks[1][1, :4] = 0, 0
    stage = Stage(layers, 0, len(layers), Trace(layers, (ids,)).cuts, huggingface.causal_loss)
    wrong = []
    for number, inputs in enumerate([(ids,), (ids, masks[0]), (ids, masks[1]), (ids[:, :5],),
                                     (ids, masks[0].clone()), (ids,), (ids[:1], masks[1][:1])]):
        torch.manual_seed(2)
        logits = whole(*inputs[:1], attention_mask=(*inputs, None)[1], use_cache=False).logits
        torch.manual_seed(2)
        taken = inputs
        for index in range(stage.count):
            taken = stage.run(index, taken, True)
        if not torch.equal(logits, taken[0]):
            wrong.append(number)
    shares = [layer._arguments is not None for layer in layers[1:-1]]
    return {"wrong": wrong, "shares": all(shares) and len(shares) == 4}


def refusal(config):
    try:
        huggingface.layers(uncut(config))
    except ValueError as error:
        return str(error)
    return ""


def cut():
    found = {}
    for name, config in CONFIGS.items():
        for cuts in CUTS:
            for length in (7, 24):
                ids = torch.randint(48, (2, length), generator=torch.Generator().manual_seed(3))
                mask = torch.ones_like(ids)
                mask[0, :2] = 0
                for inputs in ((ids,), (ids, mask)):
                    case = f"{name}, cut at {cuts}, {length} tokens, {len(inputs)} inputs"
                    found[case] = compare(config, cuts, inputs)
    opt = OPTConfig(hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=2,
                    word_embed_proj_dim=32, vocab_size=48)
    return {"cases": found, "repeats": {name: repeats(one) for name, one in CONFIGS.items()},
            "opt": refusal(opt),
            "granite": refusal(GraniteConfig(embedding_multiplier=12.0, **BLOCKS))}


def plain(kind, steps):
    model = uncut(example.config(kind))
    matrices = [one for one in model.parameters() if one.dim() > 1]
    vectors = [one for one in model.parameters() if one.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=0.003, betas=(0.9, 0.95), eps=1e-8)
    data = example.Text(example.SYNTHETIC)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for micro in range(4):
            ids, labels = data(SEED, step, micro)
            loss = model(ids, labels=labels).loss
            (loss / 4).backward()
            total += loss.item() / 4
        optimizer.step()
        losses.append(total)
    ids, labels = data(SEED, 0, 0)
    with torch.no_grad():
        return {"losses": losses, "after": model(ids, labels=labels).loss.item()}


def read(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    ids, labels = example.Text(example.SYNTHETIC)(SEED, 0, 0)
    with torch.no_grad():
        loss = model(ids, labels=labels).loss.item()
    # The same values by another way: as the first step of a run that begins with them.
    layers = build(huggingface.from_pretrained(folder), SEED)
    outputs = Trace(layers, (ids,)).outputs
    return {"loss": loss, "again": huggingface.causal_loss(*outputs, labels).item(),
            "names": sorted(name for name, _ in model.named_parameters())}


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "cut":
        RESULT = cut()
    elif sys.argv[1] == "plain":
        RESULT = plain(sys.argv[2], int(sys.argv[3]))
    else:
        RESULT = read(sys.argv[2])
    print(json.dumps(RESULT))
