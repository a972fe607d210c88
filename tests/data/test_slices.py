"""The slice store: its contents, when it is built, and that it survives damage, kills and concurrent processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.nifti import read_voxels
from fclseg.data.preprocess import Preprocessor, partitions
from fclseg.data.slices import UNLABELLED, SliceStore, default_cache, open_store
from fclseg.errors import DataError

SIZE = {"image_size": 16, "spacing": 2.0, "progress": False}


OPEN = """
import sys
from fclseg.data import slices
from fclseg.anatomy.folders import read_folder
build, built = slices._build, []
def note(*arguments):
    built.append(1)
    build(*arguments)
slices._build = note
store = slices.open_store(read_folder(sys.argv[1]), cache=sys.argv[2], image_size=16, spacing=2.0, progress=False)
print(len(built), int(store.images.astype(float).sum() * 1000), 'monai' in sys.modules, 'torch' in sys.modules)
"""


@pytest.fixture
def data(tmp_path, add_patient):
    """Two patients with a cycle of five frames, one without."""
    root = tmp_path / "data"
    add_patient(root, "patient001", frames=5)
    add_patient(root, "patient002", frames=5, shape=(30, 32, 3))
    add_patient(root, "patient003", shape=(24, 24, 9))
    return root


def built_at(store: SliceStore) -> int:
    return (store.folder / "index.json").stat().st_mtime_ns


def test_contents_are_the_pre_processed_slices_of_every_volume(data, tmp_path):
    volumes = read_folder(data)
    store = open_store(volumes, cache=tmp_path / "cache", **SIZE)
    prepare = Preprocessor(16, 2.0)
    assert store.anatomy.name == "acdc" and store.spacing == 2.0 and store.image_size == 16
    assert store.images.dtype == np.float16 and store.labels.dtype == np.uint8
    assert store.volume.dtype == np.int32 and store.partition.dtype == np.uint8
    assert len(store) == sum(stored.stop - stored.start for stored in store.volumes) == len(store.images)
    for number, (volume, stored) in enumerate(zip(volumes, store.volumes, strict=True)):
        voxels = read_voxels(volume.image)
        voxels = voxels if volume.time_index is None else voxels[..., volume.time_index]
        voxels = voxels[::-1, ::-1]  # the files are stored as RAS, and slices lie as in LPS
        part = slice(stored.start, stored.stop)
        np.testing.assert_array_equal(store.images[part], prepare.image(voxels, volume))
        if volume.label:
            expected = prepare.label(read_voxels(volume.label)[::-1, ::-1], volume, voxels.shape)
            np.testing.assert_array_equal(store.labels[part], expected)
        else:
            assert (store.labels[part] == UNLABELLED).all()
        assert (store.volume[part] == number).all()
        np.testing.assert_array_equal(store.partition[part], partitions(voxels.shape[2], 4))
        assert (stored.patient, stored.frame, stored.phase) == (volume.patient, volume.frame, volume.phase)
        assert stored.labelled == (volume.label is not None) and stored.spacing == (2.0, 2.0, 8.0)


def test_select_by_patient_and_label(data, tmp_path):
    store = open_store(read_folder(data), cache=tmp_path / "cache", **SIZE)
    for patients in (None, ["patient001"], ["patient003", "patient002"], []):
        for labelled in (None, True, False):
            oracle = [
                row
                for row in range(len(store))
                if (patients is None or store.volumes[store.volume[row]].patient in patients)
                and labelled in (None, store.volumes[store.volume[row]].labelled)
            ]
            assert store.select(patients, labelled).tolist() == oracle
    assert store.patients == ["patient001", "patient002", "patient003"]
    with pytest.raises(DataError, match="patient patient9 is not in the data"):
        store.select(["patient9"])


def test_second_open_builds_nothing_and_needs_no_monai(data, tmp_path):
    store = open_store(read_folder(data), cache=tmp_path / "cache", **SIZE)
    before = built_at(store)
    command = [sys.executable, "-c", OPEN, str(data), str(tmp_path / "cache")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split()[0] == "0" and run.stdout.split()[2:] == ["False", "False"]
    assert built_at(open_store(read_folder(data), cache=tmp_path / "cache", **SIZE)) == before
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [store.folder.name]


def test_any_change_of_source_or_parameter_is_another_store(data, tmp_path, save_nifti):
    def folder(**changes):
        return open_store(read_folder(data), cache=tmp_path / "cache", **{**SIZE, **changes}).folder

    first = folder()
    with contextlib.chdir(data.parent):
        assert open_store(read_folder(data.name), cache=tmp_path / "cache", **SIZE).folder == first
    assert folder(image_size=18) != first and folder(spacing=2.5) != first and folder() == first
    label = data / "patient001" / "patient001_frame01_gt.nii.gz"
    times = label.stat()
    save_nifti(label, np.zeros((24, 20, 6), np.uint8))
    os.utime(label, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert folder() != first
    (data / "patient003" / "Info.cfg").write_text("ED: 3\nES: 1\n")
    assert len({first, folder(), folder(image_size=18)}) == 3


def test_a_voxel_in_the_middle_of_a_large_file_is_another_store(tmp_path, save_nifti):
    """Only the two ends of a file are read for the name of its store. The modification time covers the rest."""
    image = save_nifti(
        tmp_path / "data" / "anna.nii", np.random.default_rng(0).integers(0, 99, (40, 40, 9)).astype("i2")
    )
    first = open_store(read_folder(tmp_path / "data"), cache=tmp_path / "cache", **SIZE).folder
    content = bytearray(image.read_bytes())
    content[len(content) // 2] ^= 1
    changed = image.stat().st_mtime_ns + 10**9
    image.write_bytes(content)
    os.utime(image, ns=(changed, changed))
    assert open_store(read_folder(tmp_path / "data"), cache=tmp_path / "cache", **SIZE).folder != first


def cut(folder):
    with open(folder / "images.f16", "r+b") as file:
        file.truncate(1000)


def zero_the_end(folder):
    size = (folder / "labels.u8").stat().st_size
    with open(folder / "labels.u8", "r+b") as file:
        file.seek(size - 512)
        file.write(bytes(512))


DAMAGE = {
    "cut": cut,
    "zeroed": zero_the_end,
    "no index": lambda folder: (folder / "index.json").unlink(),
    "no labels": lambda folder: (folder / "labels.u8").unlink(),
    "index is garbage": lambda folder: (folder / "index.json").write_text("{"),
    "index of something else": lambda folder: (folder / "index.json").write_text('{"volumes": []}'),
    "a file in its place": lambda folder: (
        [path.unlink() for path in folder.iterdir()],
        folder.rmdir(),
        folder.touch(),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_store_is_built_again(data, tmp_path, damage):
    volumes = read_folder(data)
    store = open_store(volumes, cache=tmp_path / "cache", **SIZE)
    images, labels = np.array(store.images), np.array(store.labels)
    DAMAGE[damage](store.folder)
    again = open_store(volumes, cache=tmp_path / "cache", **SIZE)
    np.testing.assert_array_equal(again.images, images)
    np.testing.assert_array_equal(again.labels, labels)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [store.folder.name]


def test_an_error_names_the_file_and_leaves_nothing_behind(data, tmp_path):
    volumes = read_folder(data)
    path = data / "patient003" / "patient003_frame03.nii.gz"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"patient003_frame03\.nii\.gz: is truncated"):
        open_store(volumes, cache=tmp_path / "cache", **SIZE)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_cannot_be_stored_is_refused(data, tmp_path, save_nifti):
    with pytest.raises(DataError, match="no volume"):
        open_store([], cache=tmp_path, **SIZE)
    save_nifti(tmp_path / "plain" / "a.nii.gz", np.arange(60, dtype=np.int16).reshape(5, 4, 3))
    with pytest.raises(DataError, match="different anatomies"):
        open_store(read_folder(data) + read_folder(tmp_path / "plain"), cache=tmp_path, **SIZE)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cache folder cannot be used"):
        open_store(read_folder(data), cache=tmp_path / "file" / "cache", **SIZE)


def test_cache_folder_from_the_environment(data, tmp_path, monkeypatch):
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "elsewhere"))
    assert default_cache() == tmp_path / "elsewhere"
    assert open_store(read_folder(data), **SIZE).folder.parent == tmp_path / "elsewhere"


def test_killed_builder_and_then_a_crowd(tmp_path, add_patient):
    """A builder is killed; then three processes ask at once: one builds, all see the same, nothing is left."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    for number in range(4):
        add_patient(data, f"patient{number:03d}", frames=10, shape=(12, 12, 4))
    command = [sys.executable, "-c", OPEN, str(data), str(cache)]
    victim = subprocess.Popen(command)
    while not list(cache.glob("*.building")):
        assert victim.poll() is None
        time.sleep(0.002)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert [path.suffix for path in sorted(cache.iterdir())] == [".building", ".lock"]
    crowd = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate()[0].split() for process in crowd]
    assert sorted(answer[0] for answer in answers) == ["0", "0", "1"]
    assert len({answer[1] for answer in answers}) == 1
    assert [path.suffix for path in cache.iterdir()] == [""]


def test_draft_of_a_killed_builder_of_another_store_is_removed(data, tmp_path):
    cache = tmp_path / "cache"
    (cache / "0123.building").mkdir(parents=True)
    (cache / "0123.building" / "images.f16").write_bytes(b"half")
    store = open_store(read_folder(data), cache=cache, **SIZE)
    assert list(cache.iterdir()) == [store.folder]
