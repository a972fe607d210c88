"""Reading a broken NIfTI file always gives a one-sentence error with the file's name."""

import gzip
import os

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fclseg.anatomy.nifti import is_nifti, read_header, read_voxels, stem
from fclseg.errors import DataError


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("nifti") / "intact.nii.gz"
    voxels = np.random.default_rng(0).integers(0, 1000, (9, 8, 5), dtype=np.int16)
    nib.save(nib.Nifti1Image(voxels, np.diag([1.5, 1.4, 8, 1])), path)
    return path, voxels


def test_reads_what_was_written(intact):
    path, voxels = intact
    header = read_header(path)
    assert header.shape == (9, 8, 5)
    assert header.spacing == pytest.approx((1.5, 1.4, 8.0))
    np.testing.assert_array_equal(read_voxels(path), voxels)
    assert is_nifti(path) and stem(path) == "intact"


@pytest.mark.parametrize(("unit", "factor"), [(0, 1.0), (1, 1000.0), (2, 1.0), (3, 0.001)])
def test_spacing_is_in_millimetres_whatever_the_headers_unit(tmp_path, unit, factor):
    sizes = np.array([1.5, 1.4, 8.0])
    image = nib.Nifti1Image(np.zeros((4, 5, 6), np.int16), np.diag([*sizes / factor, 1]))
    image.header["xyzt_units"] = unit
    nib.save(image, tmp_path / "a.nii")
    header = read_header(tmp_path / "a.nii")
    assert header.spacing == pytest.approx(sizes)
    np.testing.assert_allclose(np.array(header.affine), np.diag([*sizes, 1])[:3], rtol=1e-6)


@pytest.mark.parametrize("size", [0.0, -1.5, np.nan, np.inf, 1e-4, 1500.0])
@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_voxel_sizes_that_no_body_has_are_refused_and_not_repaired(tmp_path, size, ending):
    path = tmp_path / f"a.{ending}"
    nib.save(nib.Nifti1Image(np.zeros((4, 5, 6), np.int16), np.diag([1.5, 1.5, 8, 1])), path)
    content = bytearray(gzip.decompress(path.read_bytes()) if ending == "nii.gz" else path.read_bytes())
    content[80:84] = np.float32(size).tobytes()  # pixdim[1]
    content[252:256] = bytes(4)  # no qform and no sform: pixdim is all there is
    path.write_bytes(gzip.compress(content) if ending == "nii.gz" else content)
    with pytest.raises(DataError, match=r"a\.nii.*(voxel size|truncated)"):
        read_header(path)


def test_metres_where_millimetres_are_meant(tmp_path):
    image = nib.Nifti1Image(np.zeros((4, 5, 6), np.int16), np.diag([1.5, 1.4, 8, 1]))
    image.header.set_xyzt_units("meter")
    nib.save(image, tmp_path / "a.nii")
    with pytest.raises(DataError, match=r"a\.nii: a voxel size of 1500 mm .* unit of length"):
        read_header(tmp_path / "a.nii")


def test_an_affine_that_contradicts_the_voxel_size_or_is_sheared(tmp_path):
    image = nib.Nifti1Image(np.zeros((4, 5, 6), np.int16), np.diag([1.5, 1.4, 8, 1]))
    image.header.set_zooms((3.0, 1.4, 8.0))
    image.header["sform_code"], image.header["qform_code"] = 1, 0
    image.header["srow_x"] = [1.5, 0, 0, 0]
    (tmp_path / "a.nii").write_bytes(_raw(image))
    with pytest.raises(DataError, match="have different voxel sizes"):
        read_header(tmp_path / "a.nii")
    sheared = np.array([[1.5, 0.7, 0, 0], [0, 1.2, 0, 0], [0, 0, 8, 0], [0, 0, 0, 1.0]])
    nib.save(nib.Nifti1Image(np.zeros((4, 5, 6), np.int16), sheared), tmp_path / "b.nii")
    with pytest.raises(DataError, match="right angles"):
        read_header(tmp_path / "b.nii")


def _raw(image):
    """The bytes of a file whose header is exactly as it was set; saving would make affine and pixdim agree."""
    return image.header.binaryblock + bytes(4) + np.asarray(image.dataobj).tobytes(order="F")


def test_a_named_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.nii")
    with pytest.raises(DataError, match="is not a regular file"):
        read_header(tmp_path / "pipe.nii")


def test_an_unknown_unit_is_refused(tmp_path):
    image = nib.Nifti1Image(np.zeros((4, 5, 6), np.int16), np.eye(4))
    image.header["xyzt_units"] = 5
    nib.save(image, tmp_path / "a.nii")
    with pytest.raises(DataError, match=r"a\.nii: the header's unit"):
        read_header(tmp_path / "a.nii")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_never_escapes_as_another_error(intact, tmp_path_factory, data):
    """Cut anywhere or change some bytes, before or after compression: a DataError with the name, or it still reads."""
    path, _ = intact
    content = bytearray(path.read_bytes())
    compressed = data.draw(st.booleans())
    if not compressed:
        content = bytearray(gzip.decompress(content))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        positions = st.integers(0, min(len(content) - 1, 400))
        for position, value in data.draw(st.lists(st.tuples(positions, st.integers(0, 255)), min_size=1, max_size=8)):
            content[position] = value
    broken = tmp_path_factory.mktemp("damage") / ("broken.nii.gz" if compressed else "broken.nii")
    broken.write_bytes(content)
    for read in (read_header, read_voxels):
        try:
            read(broken)
        except DataError as error:
            assert str(broken) in str(error)


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, -9, -1])
def test_truncated_file_is_named(intact, tmp_path, keep):
    path, _ = intact
    content = path.read_bytes()
    broken = tmp_path / "cut.nii.gz"
    broken.write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(DataError, match=r"cut\.nii\.gz: .*(again)"):
        read_voxels(broken)


def test_not_gzip_missing_flat_and_colour(tmp_path, save_nifti):
    text = tmp_path / "text.nii.gz"
    text.write_text("this is not an image")
    with pytest.raises(DataError, match="not a gzip file"):
        read_header(text)
    with pytest.raises(DataError, match="is missing"):
        read_header(tmp_path / "nowhere.nii.gz")
    with pytest.raises(DataError, match="not a volume"):
        read_header(save_nifti(tmp_path / "flat.nii", np.zeros((5, 5), np.int16)))
    colour = np.zeros((4, 4, 3), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    with pytest.raises(DataError, match="not grey values"):
        read_voxels(save_nifti(tmp_path / "colour.nii", colour))
