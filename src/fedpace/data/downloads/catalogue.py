"""The datasets that fedpace knows: their files, sizes, sums, official sources and licences."""

from dataclasses import dataclass
from pathlib import Path

from fedpace.core.errors import unknown


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One published file. digest: `algorithm:hex`; urls: where to fetch it, the first choice first."""

    name: str
    bytes: int
    digest: str
    urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileSet:
    """A set of files that together hold a dataset.

    folder: below the data root; whole: False if it holds a part of the samples only.
    """

    what: str
    folder: str
    files: tuple[PublishedFile, ...]
    whole: bool = True

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def paths(self, root: Path) -> dict[PublishedFile, Path]:
        return {file: root / self.folder / file.name for file in self.files}


@dataclass(frozen=True, slots=True)
class KnownDataset:
    """A dataset that can be fetched.

    forms: in the order in which its reader looks for them; one of them has sources.
    """

    name: str
    about: str
    licence: str
    citation: str
    forms: tuple[FileSet, ...]

    @property
    def official(self) -> FileSet:
        """The form that can be fetched."""
        return next(form for form in self.forms if all(file.urls for file in form.files))


def find_dataset(name: str) -> KnownDataset:
    """The dataset of that name; ConfigError with the nearest one where there is none."""
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    return DATASETS[name]


def _idx(
    folder: str, mirrors: tuple[str, ...], sums: dict[str, tuple[int, str, str]]
) -> tuple[FileSet, ...]:
    """The four files, unpacked or as published. sums: bytes and sum of the .gz, sum of its contents."""
    plain = tuple(
        PublishedFile(name, _UNPACKED[name], f"sha256:{inside}")
        for name, (_, _, inside) in sums.items()
    )
    packed = tuple(
        PublishedFile(
            f"{name}.gz", size, f"sha256:{outside}", tuple(f"{url}{name}.gz" for url in mirrors)
        )
        for name, (size, outside, _) in sums.items()
    )
    return (
        FileSet("all images, unpacked", folder, plain),
        FileSet("all images", folder, packed),
    )


def _cifar_batches(folder: str) -> FileSet:
    files = tuple(
        PublishedFile(name, 30_730_000, f"md5:{digest}") for name, digest in _CIFAR_BATCHES.items()
    )
    return FileSet("all images, unpacked", folder, files)


_UNPACKED = {
    "train-images-idx3-ubyte": 47_040_016,
    "train-labels-idx1-ubyte": 60_008,
    "t10k-images-idx3-ubyte": 7_840_016,
    "t10k-labels-idx1-ubyte": 10_008,
}

_MNIST = _idx(
    "mnist",
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    {
        "train-images-idx3-ubyte": (
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        "train-labels-idx1-ubyte": (
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        "t10k-images-idx3-ubyte": (
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        "t10k-labels-idx1-ubyte": (
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    },
)

_FASHION = _idx(
    "fashion-mnist",
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    {
        "train-images-idx3-ubyte": (
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        "train-labels-idx1-ubyte": (
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        "t10k-images-idx3-ubyte": (
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        "t10k-labels-idx1-ubyte": (
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    },
)

# What its authors publish are md5 sums.
_CIFAR_BATCHES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
_CIFAR_ARCHIVE = PublishedFile(
    "cifar-10-binary.tar.gz",
    170_052_171,
    "md5:c32a1d4ab5d03f1284b67883e8d87530",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)
_CIFAR_ARRAYS = (
    PublishedFile(
        "cifar10-train20k.npy.xz",
        39_842_632,
        "sha256:fa5eff7f4c79f22143325e261a7ecfab621847c59c0d590100737b2d0aac17cf",
    ),
    PublishedFile(
        "cifar10-test4k.npy.xz",
        7_966_576,
        "sha256:18cc8cd067277796b08c41779e3cdaa0dabbc29b59cc1eeeaf32113a01ffa297",
    ),
    PublishedFile(
        "cifar10-labels.npz",
        46_624,
        "sha256:77ab8722c2bbfc490f5e69d7260fabadc76c09ae1b4e2212513c945e343a8218",
    ),
)

DATASETS = {
    dataset.name: dataset
    for dataset in (
        KnownDataset(
            "mnist",
            "handwritten digits in 10 classes: 60,000 + 10,000 grey images, 28x28",
            "none stated by its authors",
            "LeCun et al.: Gradient-based learning applied to document recognition, 1998",
            _MNIST,
        ),
        KnownDataset(
            "fashion-mnist",
            "clothes in 10 classes: 60,000 + 10,000 grey images, 28x28",
            "MIT, Copyright 2017 Zalando SE",
            "Xiao, Rasul, Vollgraf: Fashion-MNIST, arXiv:1708.07747",
            _FASHION,
        ),
        KnownDataset(
            "cifar10",
            "things and animals in 10 classes: 50,000 + 10,000 colour images, 32x32",
            "none stated by its authors, who ask to be cited",
            "Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
            (
                _cifar_batches("cifar10/cifar-10-batches-bin"),
                _cifar_batches("cifar10"),
                FileSet("all images", "cifar10", (_CIFAR_ARCHIVE,)),
                FileSet("20,000 + 4,000 of the images", "cifar10", _CIFAR_ARRAYS, whole=False),
            ),
        ),
    )
}
