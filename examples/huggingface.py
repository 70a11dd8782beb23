"""A GPT-2 or Llama of Hugging Face's transformers, trained on 2 stages x 2 replicas.

tenuto launch -n 4 examples/huggingface.py --model llama --text FILE

Then, without `tenuto launch`, write the result so that from_pretrained reads it:

./run python examples/huggingface.py --model llama --export runs/huggingface FOLDER
"""

import argparse
import json
import pathlib

import torch
from transformers import GPT2Config, LlamaConfig, PreTrainedConfig

import tenuto
import tenuto.huggingface

ROWS, TOKENS, VOCABULARY = 4, 64, 256  # tokens are bytes
SYNTHETIC = b"".join(b"%d and %d make %d. " % (a, b, a + b) for a in range(40) for b in range(40))


def config(kind: str) -> PreTrainedConfig:
    """Return the configuration of a small model: 'gpt2' or 'llama'."""
    tokens = {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": VOCABULARY}
    if kind == "gpt2":
        # Its head shares the weight of its embedding: the two stages sum its gradients.
        shape = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": TOKENS}
        dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return GPT2Config(**shape, **dropout, **tokens)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaConfig(
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=4,
        max_position_embeddings=TOKENS,
        **heads,
        **tokens,
    )


class Text:
    """Draws rows from a text: a function of (seed, iteration, micro-batch)."""

    def __init__(self, data: bytes) -> None:
        if len(data) <= TOKENS:
            raise ValueError(f"the text has {len(data)} bytes: expected more than {TOKENS}")
        self._data = torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def __call__(self, seed: int, iteration: int, micro: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return input_ids and labels [rows, tokens], which are the same for causal_loss."""
        generator = torch.Generator().manual_seed((seed * 1009 + iteration) * 1009 + micro)
        starts = torch.randint(len(self._data) - TOKENS, (ROWS, 1), generator=generator)
        rows = self._data[starts + torch.arange(TOKENS)].long()
        return rows, rows


CONFIG = {
    "job": {"name": "huggingface", "steps": 40},
    "optimizer": {"learning_rate": 0.003, "warm_up_steps": 5},
    "parallel": {"stages": 2, "pipelines": 2, "micros": 2, "micro_rows": ROWS},
}


def main() -> None:
    """Train the model, take one worker's part in it, or write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["gpt2", "llama"], default="gpt2")
    parser.add_argument("--text", type=pathlib.Path, help="file to learn; default: made-up sums")
    parser.add_argument("--write", help="file for the losses that this worker knows, JSON lines")
    parser.add_argument("--export", nargs=2, metavar=("RUN", "FOLDER"))
    options = parser.parse_args()

    def tell(step: int, loss: float) -> None:
        if options.write:
            with open(options.write, "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, "loss": loss}) + "\n")

    layers = tenuto.huggingface.from_config(config(options.model))
    loss = tenuto.huggingface.causal_loss
    with tenuto.Pipeline(layers, loss=loss, config=CONFIG, callbacks=[tell]) as pipeline:
        if options.export:
            step = pipeline.save(options.export[1], options.export[0])
            print(f"{options.export[1]} has the model after {step} steps")
            return
        pipeline.fit(Text(options.text.read_bytes() if options.text else SYNTHETIC))


if __name__ == "__main__":
    main()
