"""Sentences of unequal length: a dataset of dicts, padded batches, a model with named inputs."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import fedpace

WORDS = 60


class Reviews(torch.utils.data.Dataset):
    """Sentences of 3 to 20 words; some words speak for class 1, others for class 0."""

    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 21, (count,), generator=draw)
        self.sentences = [torch.randint(1, WORDS, (int(size),), generator=draw) for size in lengths]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, number):
        words = self.sentences[number]
        return {"ids": words, "label": int((words % 3 == 1).sum() > (words % 3 == 2).sum())}


def pad(samples):
    """As long as the longest sentence of the batch; the mask says which words are real."""
    ids = pad_sequence([one["ids"] for one in samples], batch_first=True)
    return {"ids": ids, "mask": ids > 0, "label": torch.tensor([one["label"] for one in samples])}


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, ids, mask):
        words = self.embed(ids) * mask.unsqueeze(-1)
        return self.layers(words.sum(1) / mask.sum(1, keepdim=True))


if __name__ == "__main__":
    task = fedpace.Task(Bag, Reviews(1500, 0), Reviews(400, 1), collate=pad, target="label")
    config = {"clients": 10, "partition": {"kind": "iid"}, "stop": {"rounds": 15}}
    config |= {"train": {"optimiser": "Adam", "lr": 0.02, "batch_size": 20}}
    result = fedpace.simulate(config, task=task, policy="timelyfl")
    print(f"accuracy {result.summary.best_accuracy:.0%}")
