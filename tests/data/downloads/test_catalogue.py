import gzip
import hashlib
import re
import tarfile

import pytest

from fedpace.core.errors import ConfigError
from fedpace.data import cifar
from fedpace.data.downloads.catalogue import find_dataset, known_datasets, name_some
from fedpace.data.downloads.verify import inspect_dataset
from tests.shared_data import real_data

FILES = [file for dataset in known_datasets().values() for form in dataset.forms for file in form.files]


def test_every_file_has_a_size_and_a_sum_of_the_right_length():
    for file in FILES:
        assert file.bytes > 0
        assert re.fullmatch("sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.digest)
        assert all(url.endswith(f"/{file.name}") for url in file.urls)


def test_no_two_files_of_a_form_have_the_same_sum():
    for dataset in known_datasets().values():
        for form in dataset.forms:
            assert len({file.digest for file in form.files}) == len(form.files)


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


def test_the_sums_of_the_spoken_digits_are_those_of_the_recordings_in_their_archive():
    recordings, archive = find_dataset("spoken-digits").forms[:2]
    assert len(recordings.files) == 3000
    expected = {file.name: (file.bytes, file.digest) for file in recordings.files}
    with tarfile.open(real_data("speech") / archive.files[0].name) as packed:
        for member in packed:
            content = packed.extractfile(member).read()
            found = len(content), f"sha256:{hashlib.sha256(content).hexdigest()}"
            assert expected.pop(member.name.removeprefix("recordings/")) == found
    assert expected == {}


def test_of_thousands_of_files_a_message_names_a_few():
    assert name_some(f"f{n}" for n in range(3000)) == "f0, f1, f2, f3, f4, f5 and 2,994 more"
    assert name_some("abcdefg") == "a, b, c, d, e, f, g"


def test_an_unknown_dataset_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"no dataset 'cifar-10' \(did you mean 'cifar10'\?\)"):
        find_dataset("cifar-10")


@pytest.mark.parametrize("name", known_datasets())
def test_real_files_have_the_sums_of_the_catalogue(name):
    folder = {"spoken-digits": "speech", "shakespeare": "text"}.get(name, name)
    found = inspect_dataset(find_dataset(name), real_data(folder).parent)
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
