"""Fine-tune a transformer by LoRA: only the adapters travel, are cut and are averaged.

Needs transformers and peft: pip install 'fedpace[lora]'. The base is small and has random weights, so
nothing is downloaded; for a real one put `AutoModelForCausalLM.from_pretrained(...)` in its place.
"""

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

import fedpace

WORDS, LENGTH = 40, 12
ADAPTERS = {"r": 4, "lora_alpha": 16, "target_modules": ["c_attn"], "fan_in_fan_out": True}
SHAPE = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 64, "n_layer": 4, "n_head": 4}
SHAPE |= {"bos_token_id": 0, "eos_token_id": 0}


def model():
    base = GPT2LMHeadModel(GPT2Config(**SHAPE))
    return get_peft_model(base, LoraConfig(**ADAPTERS))


def loss(outputs, targets):
    return cross_entropy(outputs.logits.flatten(0, 1), targets.flatten())


def accuracy(outputs, targets):
    return (outputs.logits.argmax(-1) == targets).float().mean(1)


draw = np.random.default_rng(0)
starts, steps = draw.integers(WORDS, size=(600, 1)), draw.choice([1, 3], size=(600, 1))
tokens = torch.from_numpy((starts + steps * np.arange(LENGTH + 1)) % WORDS)
inputs, targets = {"input_ids": tokens[:, :-1]}, tokens[:, 1:]
train, test = (
    ({name: value[part] for name, value in inputs.items()}, targets[part])
    for part in (slice(500), slice(500, None))
)
task = fedpace.Task(model, train, test, loss=loss, accuracy=accuracy)
config = {
    "clients": 10,
    "partition": {"kind": "iid"},
    "fleet": {
        "kind": "explicit",
        "compute_s": [0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 0.2],
        "down_mbps": [10.0],
        "up_mbps": [5.0],
    },
    "train": {"lr": 0.01, "optimiser": "Adam", "batch_size": 10},
    "stop": {"rounds": 15},
    "weights": "trainable",
}

if __name__ == "__main__":
    made = model()
    everything = sum(value.numel() * 4 for value in made.parameters())
    result = fedpace.simulate(config, task=task, policy="timelyfl")
    layers = result.journal.header.context.model
    print(f"{layers.depth} layers of adapters: {layers.total_bytes} of {everything} bytes travel")
    print(f"updates carry {result.summary.mean_depth_share:.0%} of the layers on average")
    (_, first), (_, last) = result.summary.loss[0], result.summary.loss[-1]
    print(f"loss {first:.2f} -> {last:.2f}, accuracy {result.summary.final_accuracy:.1%}")
