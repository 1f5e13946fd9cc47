"""Models that say what token comes next, for each token of a sequence."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpace.core.errors import ConfigError, unknown
from fedpace.data.text.vocabulary import PAD
from fedpace.learn.model.attention import attend_packed

MODELS = ("lstm", "albert")


class NextTokenLstm(nn.Module):
    """An embedding, two LSTM layers and a dense one.

    With an embedding of 8 and layers of 256 it is LEAF's model for Shakespeare (McMahan et al. 2017).
    Differs: it answers for every token of a sequence, LEAF's for the last one only.
    """

    def __init__(self, tokens: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding, padding_idx=PAD)
        self.lstm1 = nn.LSTM(embedding, hidden, batch_first=True)
        self.lstm2 = nn.LSTM(hidden, hidden, batch_first=True)
        self.dense = nn.Linear(hidden, tokens)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm1(self.embedding(x))
        states, _ = self.lstm2(states)
        answers: Tensor = self.dense(states)
        return answers


class CausalBlock(nn.Module):
    """One transformer block, normalised behind its sums as in BERT; a token sees those before it."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attend = nn.Linear(hidden, 3 * hidden)
        self.gather = nn.Linear(hidden, hidden)
        self.norm1 = nn.LayerNorm(hidden)
        self.widen = nn.Linear(hidden, 4 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, hidden = x.shape
        parts = self.attend(x).view(samples, length, 3, self.heads, hidden // self.heads)
        x = self.norm1(x + self.gather(attend_packed(parts, causal=True)))
        made: Tensor = self.norm2(x + self.narrow(functional.gelu(self.widen(x))))
        return made


class CausalAlbert(nn.Module):
    """An ALBERT (Lan et al. 2020) that reads from left to right, for the next token.

    Two things make it light: embeddings are narrow and then widened (factorised), and one block stands
    for all layers. The output layer shares the weights of the embedding. Padding comes at the end of a
    sequence, where no token before it sees it, and needs no mask.
    Differs from ALBERT: a causal mask, and no sentence types, since nothing is masked or ordered.
    """

    def __init__(
        self,
        tokens: int,
        length: int,
        embedding: int = 128,
        hidden: int = 256,
        heads: int = 4,
        layers: int = 4,
    ) -> None:
        super().__init__()
        self.layers = layers
        self.embedding = nn.Embedding(tokens, embedding, padding_idx=PAD)
        self.positions = nn.Embedding(length, embedding)
        self.norm = nn.LayerNorm(embedding)
        self.widen = nn.Linear(embedding, hidden)
        self.block = CausalBlock(hidden, heads)
        self.narrow = nn.Linear(hidden, embedding)
        self.last_norm = nn.LayerNorm(embedding)
        self.decode = nn.Linear(embedding, tokens)
        for module in self.modules():  # BERT's start
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        self.decode.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        states = self.widen(self.norm(self.embedding(x) + self.positions(places)))
        for _ in range(self.layers):
            states = self.block(states)
        answers: Tensor = self.decode(self.last_norm(functional.gelu(self.narrow(states))))
        return answers


def build_text_model(
    name: str, tokens: int, length: int, embedding: int | None = None, hidden: int | None = None
) -> nn.Module:
    """A new model by its name.

    tokens: numbers of the vocabulary; length: of a sequence at most; embedding, hidden: widths, None
    for 8 and 256 (LSTM, as in LEAF) or 128 and 256 (ALBERT).
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    hidden = hidden or 256
    if name == "lstm":
        return NextTokenLstm(tokens, embedding or 8, hidden)
    if hidden % 64:
        raise ConfigError(
            f"hidden is {hidden}, but the model albert has heads of 64; set hidden to a multiple of 64"
        )
    return CausalAlbert(tokens, length, embedding or 128, hidden, hidden // 64)
