"""Nothing is lost: two windows, a crash at any step, another program's label maps, an interrupted journal."""

import csv
import json
import threading

import nibabel as nib
import numpy as np
import pytest
from known_images import SHAPE, SPACING, marked, write_patient

from fclseg.anatomy.folders import read_folder
from fclseg.errors import DataError, FCLSegError
from fclseg.labelling.records import DONE, DRAFT, EXCLUDED, OPEN, ChangedMeanwhileError
from fclseg.labelling.session import Session, Slice
from fclseg.resources import shipped_model


def plane(value, seed=0):
    found = np.zeros(SHAPE[:2], np.uint8)
    x, y = np.random.default_rng(seed).integers(0, 6, 2)
    found[x : x + 4, y : y + 3] = value
    return found


def on_disk(session, index):
    volume = session.volumes[index]
    path = session.folder.label_file(volume)
    return volume.storage.inside(np.asarray(nib.load(path).dataobj)) if path.exists() else None


def test_a_slice_is_on_disk_with_who_and_how_long(begin):
    session = begin()
    session.save(Slice(0, 2, 0, DONE, 12.5, plane(3)))
    session.save(Slice(0, 2, 1, DONE, 2.0, plane(1)), who="bert")
    found = on_disk(session, 0)
    assert (found[:, :, 2] == plane(1)).all() and (np.delete(found, 2, axis=2) == 255).all()
    with open(session.out / "labelled.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert [row[name] for name in ("patient", "frame", "slice", "state", "who", "seconds")] == [
        "anna", "1", "2", "done", "bert", "14.5",
    ]  # fmt: skip


def test_the_later_of_two_windows_is_told_and_overwrites_nothing(begin):
    session = begin()
    session.save(Slice(0, 1, 0, DRAFT, 1, plane(1)))
    with pytest.raises(ChangedMeanwhileError, match=r"slice 2 of anna was changed meanwhile by anna \(revision 1"):
        session.save(Slice(0, 1, 0, DRAFT, 1, plane(2)))
    assert (session.labels(0)[:, :, 1] == plane(1)).all()
    session.save(Slice(0, 1, 1, DRAFT, 1, plane(2)))
    session.save(Slice(0, 2, 0, DRAFT, 1, plane(2)))  # another slice is not concerned


def test_many_windows_at_once(begin):
    """Of several that change the same revision, exactly one wins; different slices do not disturb each other."""
    session, won, lost = begin(), [], []

    def window(number):
        for slice_number in range(SHAPE[2]):
            try:
                session.save(Slice(0, slice_number, 0, DONE, 0, plane(1 + number % 3, number)))
                won.append((slice_number, number))
            except ChangedMeanwhileError:
                lost.append((slice_number, number))

    threads = [threading.Thread(target=window, args=(number,)) for number in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(slice_number for slice_number, _ in won) == list(range(SHAPE[2])) and len(lost) == 5 * SHAPE[2]
    found = on_disk(session, 0)
    for slice_number, number in won:
        assert (found[:, :, slice_number] == plane(1 + number % 3, number)).all()


def test_a_new_session_finds_everything(begin):
    session = begin()
    session.save(Slice(0, 1, 0, DONE, 3, plane(1)))
    session.save(Slice(1, 4, 0, DRAFT, 3, plane(2)))
    session.save(Slice(2, 0, 0, EXCLUDED, 3, plane(3)))
    again = begin()
    assert again.records.slices == session.records.slices
    for index, number, value in ((0, 1, 1), (1, 4, 2), (2, 0, 3)):
        assert (again.labels(index)[:, :, number] == plane(value)).all()


@pytest.mark.parametrize("step", ["write_draft", "write", "name_phases", "change"])
def test_killed_at_any_step_leaves_the_old_or_the_new_slice(begin, monkeypatch, step):
    session = begin()
    session.save(Slice(0, 1, 0, DONE, 1, plane(1)))

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(session.records if step == "change" else session.folder, step, killed)
    with pytest.raises(KeyboardInterrupt):
        session.save(Slice(0, 1, 1, DONE, 1, plane(2)))
    monkeypatch.undo()
    again = begin()
    assert again.records.of(("anna", 1, 1)).state == DONE
    found = on_disk(again, 0)[:, :, 1]
    assert (found == plane(1)).all() or (found == plane(2)).all()
    again.save(Slice(0, 1, again.records.of(("anna", 1, 1)).revision, DONE, 1, plane(3)))


def test_an_interrupted_line_is_left_out(begin):
    session = begin()
    session.save(Slice(0, 1, 0, DONE, 1, plane(1)))
    with open(session.out / "labelling.jsonl", "a") as file:
        file.write(json.dumps({"patient": "anna", "frame": 1, "slice": 2, "revision": 1})[:-9])
    assert begin().records.slices == session.records.slices


def test_label_maps_of_other_programs_count(begin):
    """Somebody puts a label map, with 255 where nothing is labelled, beside the image; and removes another."""
    session = begin()
    session.save(Slice(0, 1, 0, DONE, 1, plane(1)))
    session.folder.label_file(session.volumes[0]).unlink()
    image = nib.load(session.volumes[2].image)
    labels = np.full(image.shape, 255, np.uint8)
    labels[:, :, 3] = 0
    path = session.folder.label_file(session.volumes[2])
    path.parent.mkdir()
    nib.save(nib.Nifti1Image(labels, image.affine), path)
    again = begin()
    stored_slice = [s for s in range(5) if again.records.of(("bert", 1, s)).state == DONE]
    assert len(stored_slice) == 1 and again.records.of(("anna", 1, 1)).state == OPEN


def test_labels_of_the_data_set_are_taken_over(data, tmp_path):
    write_patient(data, "carl", [marked() + 2, marked() + 3])
    image = nib.load(data / "carl" / "carl_frame01.nii.gz")
    nib.save(nib.Nifti1Image(np.ones(image.shape, np.uint8), image.affine), data / "carl" / "carl_frame01_gt.nii.gz")
    session = Session(data, tmp_path / "labels", shipped_model("acdc_unet"), "anna")
    assert [session.records.of(("carl", 1, s)).who for s in range(5)] == ["data set"] * 5
    assert {volume.patient for volume in read_folder(session.out) if volume.label} == {"carl"}
    assert len(session.records.slices) == len(
        Session(data, tmp_path / "labels", shipped_model("acdc_unet"), "anna").records.slices
    )


def test_reopened_slices_are_no_longer_labelled(begin):
    session = begin()
    session.save(Slice(0, 1, 0, DONE, 1, plane(1)))
    session.save(Slice(0, 1, 1, EXCLUDED, 1, plane(1)))
    assert on_disk(session, 0) is None
    session.save(Slice(0, 1, 2, DONE, 1, plane(1)))
    assert (on_disk(session, 0)[:, :, 1] == plane(1)).all()


def test_numbers_follow_outlines_exclusion_and_phase(begin):
    """EDV, ESV and EF from voxels counted by hand; ED is frame 1 until somebody says otherwise."""
    session = begin()
    ml = float(np.prod(SPACING)) / 1000
    for index, count in ((0, 3), (1, 1)):
        for number in range(count):
            session.save(Slice(index, number, 0, DONE, 0, np.full(SHAPE[:2], 3, np.uint8)))
        for number in range(count, SHAPE[2]):
            session.save(Slice(index, number, 0, DONE, 0, np.zeros(SHAPE[:2], np.uint8)))
    area = SHAPE[0] * SHAPE[1]

    def shown():
        values = {value["name"]: float(value["text"].split()[0]) for value in session.numbers("anna")}
        return [values[f"LV {name}"] for name in ("end-diastolic volume", "end-systolic volume", "ejection fraction")]

    def expected(ed, es):
        return [round(ed * area * ml), round(es * area * ml), round(100 * (ed - es) / ed)]

    assert shown() == expected(3, 1)
    session.save(Slice(0, 0, 1, EXCLUDED, 0))
    assert shown() == expected(2, 1)
    session.set_phase(1, "ED")
    session.set_phase(0, "ES")
    assert shown() == expected(1, 2)
    info = (session.out / "anna" / "Info.cfg").read_text()
    assert "ED: 2\n" in info and "ES: 1\n" in info and "Group: NOR\n" in info


def test_end_diastole_is_listed_first(answers):
    def shown():
        return [(one["volume"], one["phase"]) for one in answers.state({}, b"")["patients"][0]["frames"]]

    assert shown() == [(0, "ED"), (1, "ES")]
    answers.session.set_phase(1, "ED")
    answers.session.set_phase(0, "ES")
    assert shown() == [(1, "ED"), (0, "ES")]


def test_frames_of_a_cycle_get_files_of_their_own(tmp_path):
    folder = tmp_path / "data" / "dora"
    folder.mkdir(parents=True)
    frames = np.stack([marked() + 10 * t for t in range(4)], axis=-1)
    nib.save(nib.Nifti1Image(frames, np.diag([*SPACING, 1])), folder / "dora_4d.nii.gz")
    (folder / "Info.cfg").write_text("ED: 2\nES: 4\n")
    session = Session(tmp_path / "data", tmp_path / "labels", shipped_model("acdc_unet"), "anna")
    index = next(i for i in session.patients["dora"] if session.volumes[i].frame == 2)
    session.save(Slice(index, 0, 0, DONE, 1, plane(1)))
    volumes = read_folder(session.out)
    assert [(volume.frame, volume.phase, volume.label is not None) for volume in volumes] == [
        (2, "ED", True), (4, "ES", False),
    ]  # fmt: skip
    for volume in volumes:
        np.testing.assert_array_equal(np.asarray(nib.load(volume.image).dataobj), frames[..., volume.frame - 1])


def test_labels_do_not_go_into_the_data(data):
    for out in (data, data / "labels", data.parent):
        with pytest.raises(DataError, match="separate folders"):
            Session(data, out, shipped_model("acdc_unet"), "anna")


def test_a_full_disk_is_a_sentence_and_keeps_what_was_there(begin, monkeypatch):
    session = begin()
    session.save(Slice(0, 1, 0, DONE, 1, plane(1)))

    def full(*arguments, **names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nibabel.save", full)
    with pytest.raises(FCLSegError, match=r"cannot be written \(No space left on device\)"):
        session.save(Slice(0, 1, 1, DONE, 1, plane(2)))
    monkeypatch.undo()
    assert (on_disk(begin(), 0)[:, :, 1] == plane(1)).all()


def test_single_slices_of_another_program_in_another_axis_order(data, tmp_path):
    """As ITK-SNAP and 3D Slicer write them: 0 in all other slices, and perhaps with axes in another order."""
    image = nib.load(data / "bert" / "bert_frame01.nii.gz")
    labels = np.zeros(image.shape, np.uint8)
    labels[2:6, 3:5, 1] = 3
    turned = nib.as_closest_canonical(nib.Nifti1Image(labels, image.affine))
    assert turned.shape != image.shape or not np.allclose(turned.affine, image.affine)
    (tmp_path / "labels" / "bert").mkdir(parents=True)
    nib.save(turned, tmp_path / "labels" / "bert" / "bert_frame01_gt.nii.gz")
    session = Session(data, tmp_path / "labels", shipped_model("acdc_unet"), "anna", single_slices=True)
    (volume,) = [volume for volume in read_folder(session.out) if volume.label]
    written = nib.load(volume.label)
    np.testing.assert_allclose(written.affine, image.affine, atol=1e-4)  # stored like its image
    expected = np.full(image.shape, 255)
    expected[:, :, 1] = labels[:, :, 1]
    np.testing.assert_array_equal(np.asarray(written.dataobj), expected)
    (key,) = session.records.keys(DONE)
    assert key[:2] == ("bert", 1)
