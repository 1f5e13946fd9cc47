import gzip
import hashlib
import re

import pytest

from fedpace.core.errors import ConfigError
from fedpace.data import cifar
from fedpace.data.downloads.catalogue import find_dataset, known_datasets
from fedpace.data.downloads.verify import inspect_dataset
from tests.shared_data import real_data

FILES = [file for dataset in known_datasets().values() for form in dataset.forms for file in form.files]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_has_a_size_and_a_sum_of_the_right_length(file):
    assert file.bytes > 0
    assert re.fullmatch("sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.digest)
    assert all(url.endswith(f"/{file.name}") for url in file.urls)


def test_no_two_different_files_have_the_same_sum():
    assert len({file.digest for file in FILES}) == len({file.digest + file.name for file in FILES})


def test_what_has_no_sum_of_sha256_comes_over_https():
    assert all(
        url.startswith("https://")
        for file in FILES
        for url in file.urls
        if not file.digest.startswith("sha256:")
    )


def test_what_is_fetched_is_the_whole_dataset_in_its_own_folder():
    for dataset in known_datasets().values():
        assert dataset.official.whole
        assert dataset.official.folder == dataset.name


def test_the_reader_of_cifar10_looks_for_the_files_of_the_catalogue():
    names = [[file.name for file in form.files] for form in find_dataset("cifar10").forms]
    six = [*cifar.TRAIN, cifar.TEST]
    arrays = [cifar.TRAIN_ARRAY, cifar.TEST_ARRAY, cifar.LABEL_ARRAYS]
    assert names == [six, six, [cifar.ARCHIVE], arrays]
    assert {file.bytes for file in find_dataset("cifar10").forms[0].files} == {10_000 * cifar.RECORD}


def test_an_unknown_dataset_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no dataset 'cifar-10' \(did you mean 'cifar10'\?\)"):
        find_dataset("cifar-10")


@pytest.mark.parametrize("name", known_datasets())
def test_real_files_have_the_sums_of_the_catalogue(name):
    found = inspect_dataset(find_dataset(name), real_data(name).parent)
    assert found.broken == {}
    assert found.form is not None


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_files_have_the_sums_of_the_catalogue_when_unpacked_too(name):
    folder = real_data(name)
    for file in find_dataset(name).forms[0].files:
        content = gzip.decompress((folder / f"{file.name}.gz").read_bytes())
        assert (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}") == (
            file.bytes,
            file.digest,
        )
