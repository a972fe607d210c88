"""What is drawn on the picture is at the same place of the body in the file, for every way to store an image."""

import nibabel as nib
import numpy as np
import pytest
from known_images import BRIGHT, ORDERS, affine, marked, read, write_patient

from fclseg.data.check import check_folder
from fclseg.labelling.answers import Answers
from fclseg.labelling.session import Session
from fclseg.labelling.training import Training
from fclseg.resources import shipped_model


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """One patient for each of the 48 storage orders, all with the same heart."""
    folder = tmp_path_factory.mktemp("orders")
    other = np.random.default_rng(2).integers(0, 99, (14, 11, 5)).astype(np.int16)
    for number, (axes, flips) in enumerate(ORDERS):
        write_patient(folder / "data", f"p{number:02d}", [marked(), other + number], axes, flips)
    session = Session(folder / "data", folder / "labels", shipped_model("acdc_unet"), "anna")
    # Opening a volume asks the network for outlines; nothing is begun here, so that pages stay without any.
    return Answers(session, Training(folder / "models", session.use))


def in_the_body(path, where):
    """Positions in mm, rounded, of the voxels for which ``where`` is true: from the file's own affine alone."""
    image = nib.load(path)
    voxels = np.argwhere(where(np.asarray(image.dataobj)))
    places = (image.affine @ np.c_[voxels, np.ones(len(voxels))].T).T[:, :3]
    return {tuple(place) for place in np.round(places, 2).tolist()}


@pytest.mark.parametrize("number", range(len(ORDERS)))
def test_a_label_is_where_it_was_drawn(answers, number):
    session = answers.session
    index = session.patients[f"p{number:02d}"][0]
    header, (grey, _, _) = read(answers.volume({}, b"", index))
    bright = grey > 200
    for slice_number in (0, 3):  # as the page does it: the hook as structure 2, the rest as background
        body = np.where(bright[slice_number], 2, 0).astype(np.uint8).tobytes()
        answers.save({"revision": "0", "state": "done", "seconds": "1"}, body, index, slice_number)
    volume = session.volumes[index]
    label = session.folder.label_file(volume)
    hooks = in_the_body(volume.image, lambda voxels: voxels == BRIGHT)
    inverse = np.linalg.inv(affine())
    slices = {place: round(float((inverse @ [*place, 1])[2])) for place in hooks}  # slice of the image as it was made
    shown = [z for z in range(5) if {p for p, s in slices.items() if s == z} <= in_the_body(label, lambda v: v == 2)]
    assert len(shown) == 2
    assert in_the_body(label, lambda voxels: voxels == 2) == {place for place, z in slices.items() if z in shown}
    everywhere = in_the_body(volume.image, lambda voxels: voxels >= 0)
    away = {p for p in everywhere if round(float((inverse @ [*p, 1])[2])) not in shown}
    assert in_the_body(label, lambda voxels: voxels == 255) == away
    np.testing.assert_allclose(nib.load(label).affine, nib.load(volume.image).affine)
    assert header["outlined"] is False


def test_every_order_shows_the_same_picture_and_the_folder_is_sound(answers):
    pictures = [read(answers.volume({}, b"", group[0]))[1][0] for group in answers.session.patients.values()]
    for picture in pictures[1:]:
        np.testing.assert_array_equal(picture, pictures[0])
    report = check_folder(answers.session.out)
    assert [problem for problem in report.problems if "same image" not in problem] == []
    labelled = [patient.slices for patient in report.patients]
    assert set(labelled) == {2}
