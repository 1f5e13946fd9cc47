"""Models for spoken words, which they see as log-mel spectrograms (samples, 1, bands, frames)."""

from torch import Tensor, nn
from torch.nn.functional import relu

from fedpace.core.errors import unknown
from fedpace.learn.tasks.models.images import Side, build_model, start_for_relu

IMAGE_MODELS = ("vgg11", "vgg11-bn", "resnet20", "resnet20-gn")
MODELS = ("gru", *IMAGE_MODELS)


class LightGru(nn.Module):
    """TimelyFL's light model (section 4.3): two convolutions, a GRU, average pooling, two dense layers.

    79,044 parameters for 128 bands and 35 words. The paper gives that number and the row of layers,
    no widths. Those of the model that it follows (FedAudio, Zhang et al. 2022) give exactly it:
    convolutions over time of 32 and 64 channels and width 3, each halving the frames, a GRU of 64 in
    both directions, dense layers of 64 and of one output more than there are words. The 36th is what
    Speech Commands' folder of background noise counts as; no sample has it.
    """

    def __init__(self, bands: int = 128, words: int = 35) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(bands, 32, 3, padding=1)
        self.conv2 = nn.Conv1d(32, 64, 3, padding=1)
        self.pool = nn.MaxPool1d(2)
        self.gru = nn.GRU(64, 64, batch_first=True, bidirectional=True)
        self.dense1 = nn.Linear(128, 64)
        self.dense2 = nn.Linear(64, words + 1)
        start_for_relu(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(relu(self.conv1(x.flatten(1, 2))))
        x = self.pool(relu(self.conv2(x)))
        x, _ = self.gru(x.transpose(1, 2))
        answers: Tensor = self.dense2(relu(self.dense1(x.mean(1))))
        return answers


def build_speech_model(name: str, words: int, side: Side) -> nn.Module:
    """A new model by its name. side: bands and frames of a spectrogram."""
    if name == "gru":
        return LightGru(side[0], words)
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return build_model(name, 1, words, side)
