"""A cine short-axis series as a scanner would export it: one classic MR file per slice and phase."""

import numpy as np
import pydicom
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import EnhancedMRImageStorage, ExplicitVRLittleEndian, MRImageStorage, generate_uid

ORIENTATION = [0.58, 0.81, 0.0871, 0.4, -0.19, -0.8966]
"""How scanners store short-axis slices: a row runs to the left and back, a column to the feet. Their normal points from
apex to base."""


def directions():
    """Two unit vectors at right angles, of a double-oblique plane."""
    x = np.array(ORIENTATION[:3]) / np.linalg.norm(ORIENTATION[:3])
    y = np.array(ORIENTATION[3:])
    y -= x * (x @ y)
    return x, y / np.linalg.norm(y)


def write_series(folder, voxels, spacing, *, patient="Doe^Jane", number="12345", series_per_slice=False, shuffle=0):
    """Voxels [X, Y, S, T]; returns the affine [4, 4] in NIfTI's coordinates. File names tell nothing of the order.

    X points to the right of the picture, Y down, and S along the normal: for a heart in ACDC's order, which begins at
    the base, reverse the slices.
    """
    folder.mkdir(parents=True, exist_ok=True)
    x, y = directions()
    normal = np.cross(x, y)
    origin = np.array([-80.0, -60.0, 40.0])
    study, frame, one_series = generate_uid(), generate_uid(), generate_uid()
    names = np.random.default_rng(shuffle).permutation(voxels.shape[2] * voxels.shape[3])
    for s in range(voxels.shape[2]):
        series = generate_uid() if series_per_slice else one_series
        for t in range(voxels.shape[3]):
            image = _image(voxels[:, :, s, t], study, frame, series)
            image.PatientName, image.PatientID = patient, number
            image.ImageOrientationPatient = [float(f"{value:.8f}") for value in (*x, *y)]
            image.ImagePositionPatient = [float(f"{value:.6f}") for value in origin + normal * spacing[2] * s]
            image.PixelSpacing, image.SliceThickness = [spacing[1], spacing[0]], spacing[2]
            image.TriggerTime, image.InstanceNumber = 40.0 * t, int(s * voxels.shape[3] + t + 1)
            image.PatientSize, image.PatientWeight, image.HeartRate = 1.7, 70.0, 60
            image.add_new(0x00191010, "LO", "a private tag")
            image.save_as(folder / f"IM{names[s * voxels.shape[3] + t]:05d}", enforce_file_format=True)
    affine = np.eye(4)
    affine[:3, :3] = np.stack([x * spacing[0], y * spacing[1], normal * spacing[2]], axis=1)
    affine[:3, 3] = origin
    affine[:2] *= -1
    return affine


def write_enhanced(folder, voxels, spacing):
    """The same as one enhanced file with all slices and phases; returns the affine [4, 4] in NIfTI's coordinates."""
    affine = write_series(folder, voxels, spacing)
    classic = [pydicom.dcmread(path) for path in sorted(folder.iterdir())]
    enhanced = classic[0]
    frames = []
    for image in classic:  # in no order, as their names
        own = Dataset()
        own.PlanePositionSequence = [_item(ImagePositionPatient=image.ImagePositionPatient)]
        own.CardiacSynchronizationSequence = [_item(NominalCardiacTriggerDelayTime=float(image.TriggerTime))]
        own.FrameContentSequence = [_item(TemporalPositionIndex=1 + int(image.TriggerTime / 40))]
        frames.append(own)
    shared = Dataset()
    shared.PlaneOrientationSequence = [_item(ImageOrientationPatient=enhanced.ImageOrientationPatient)]
    shared.PixelMeasuresSequence = [_item(PixelSpacing=enhanced.PixelSpacing, SliceThickness=enhanced.SliceThickness)]
    enhanced.SharedFunctionalGroupsSequence, enhanced.PerFrameFunctionalGroupsSequence = [shared], frames
    enhanced.NumberOfFrames = len(frames)
    enhanced.PixelData = b"".join(image.PixelData for image in classic)
    for name in ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness", "TriggerTime"):
        delattr(enhanced, name)
    enhanced.SOPClassUID = enhanced.file_meta.MediaStorageSOPClassUID = EnhancedMRImageStorage
    for path in folder.iterdir():
        path.unlink()
    enhanced.save_as(folder / "IM1", enforce_file_format=True)
    return affine


def _item(**values):
    item = Dataset()
    for name, value in values.items():
        setattr(item, name, value)
    return item


def _image(pixels, study, frame, series):
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.TransferSyntaxUID = MRImageStorage, ExplicitVRLittleEndian
    meta.MediaStorageSOPInstanceUID = generate_uid()
    image = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
    image.SOPClassUID, image.SOPInstanceUID = MRImageStorage, meta.MediaStorageSOPInstanceUID
    image.StudyInstanceUID, image.SeriesInstanceUID, image.FrameOfReferenceUID = study, series, frame
    image.Modality, image.StudyID, image.SeriesNumber = "MR", "1", 3
    image.PatientBirthDate, image.PatientSex, image.AccessionNumber = "19700101", "F", ""
    image.StudyDate, image.StudyTime, image.ReferringPhysicianName = "20200101", "120000", ""
    image.PositionReferenceIndicator, image.Manufacturer = "", "test"
    image.Rows, image.Columns = pixels.shape[1], pixels.shape[0]
    image.SamplesPerPixel, image.PhotometricInterpretation = 1, "MONOCHROME2"
    image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 16, 15, 0
    image.PixelData = np.ascontiguousarray(pixels.T).astype("<u2").tobytes()
    return image


def tags(path):
    return pydicom.dcmread(path)
