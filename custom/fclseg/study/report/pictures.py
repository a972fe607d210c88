"""The visual comparison: one slice with its ground truth and the prediction of every row, as inline images."""

import base64
import io
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from matplotlib.colors import to_rgb

from fclseg.data.preprocess import UNLABELLED
from fclseg.documents import UNUSABLE
from fclseg.errors import DataError
from fclseg.study.document import Study
from fclseg.study.export import find_entry

SHARE = 0.55
ENLARGE = 6
MARGIN = 8


def comparison(study: Study, root: Path, names: bool = False) -> list[dict[str, Any]]:
    """Strips of pictures: image, ground truth, then the rows of the table, best first.

    The strips with the most labelled patients come first, full fine-tuning before frozen-encoder evaluation.
    """
    palette = np.array([to_rgb(structure["colour"]) for structure in legend(study)])
    strips = []
    for labels in sorted(study["labels"], reverse=True):
        for mode in study["modes"]:
            found = predictions(study, root, labels, mode)
            for caption in dict.fromkeys(one["caption"] for one in found):  # older results show a different slice
                same = [one for one in found if one["caption"] == caption]
                shown = caption if names else without_name(caption)
                place = {"labels": labels, "mode": mode, "caption": shown}
                strips.append(place | {"pictures": strip(same, palette)})
    return strips


def predictions(study: Study, root: Path, labels: int, mode: str) -> list[dict[str, Any]]:
    """The stored predictions of one strip, with the title and mean Dice of each row, best first."""
    titles = {row["key"]: row["title"] for row in study["rows"]}
    found = []
    for one in study["pictures"]:
        entry = find_entry(study, one["row"], labels, mode)
        if (one["labels"], one["mode"]) == (labels, mode) and entry and (root / one["file"]).exists():
            arrays = read_arrays(root / one["file"])
            row = {"title": titles[one["row"]], "dice": entry["summary"]["mean"]}
            found.append(arrays | row | {"caption": str(arrays["caption"])})
    return sorted(found, key=lambda one: -one["dice"])


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The image, the ground truth and the prediction of one slice."""
    try:
        if not path.is_file():  # reading a named pipe would wait forever
            raise ValueError(path)
        with np.load(path) as file:
            arrays = dict(file)
        shapes = {arrays[name].shape for name in ("image", "truth", "prediction")}
    except (OSError, EOFError, BadZipFile, zlib.error, *UNUSABLE):
        raise DataError(f"{path}: is damaged; remove it to leave the picture out") from None
    if len(shapes) != 1 or len(shapes.pop()) != 2 or "caption" not in arrays:
        raise DataError(f"{path}: contains no picture of a slice; remove it to leave the picture out")
    return arrays


def without_name(caption: str) -> str:
    """A stored caption consists of the patient's name, a comma, and the slice."""
    return f"a held-out patient, {caption.rpartition(', ')[2]}"


def legend(study: Study) -> list[dict[str, Any]]:
    """The structures of the fine-tuning images, with their colours."""
    data = study["settings"].get("target") or study["settings"]["data"]
    return data["structures"] if data else []


def strip(found: list[dict[str, Any]], palette: np.ndarray) -> list[dict[str, Any]]:
    """The pictures of one slice, all cropped to the same window around the ground truth."""
    image, truth = found[0]["image"].astype(float), found[0]["truth"]
    window = around(truth)
    pictures = [
        {"title": "Image", "dice": None, "source": png(paint(image[window]))},
        {"title": "Ground truth", "dice": None, "source": png(paint(image[window], truth[window], palette))},
    ]
    for one in found:
        source = png(paint(image[window], one["prediction"][window], palette))
        pictures.append({"title": one["title"], "dice": one["dice"], "source": source})
    return pictures


def around(truth: np.ndarray) -> tuple[slice, slice]:
    """A square window around all labelled pixels with some margin, or the whole image if nothing is labelled."""
    rows, columns = np.nonzero((truth > 0) & (truth < UNLABELLED))
    if len(rows) == 0:
        return slice(None), slice(None)
    centre = (int(rows.min() + rows.max()) // 2, int(columns.min() + columns.max()) // 2)
    half = int(max(np.ptp(rows), np.ptp(columns))) // 2 + MARGIN
    top, left = (slice(max(0, c - half), min(size, c + half)) for c, size in zip(centre, truth.shape, strict=True))
    return top, left


def paint(image: np.ndarray, labels: np.ndarray | None = None, palette: np.ndarray | None = None) -> np.ndarray:
    """Grey image [H, W] with coloured structures -> RGB [H, W, 3], enlarged: smooth image, sharp labels.

    ``palette`` [structures, 3] contains the colours of the label values 1, 2, ...
    """
    from scipy.ndimage import zoom

    grey = np.clip(zoom(image, ENLARGE, order=1), 0, 1)
    colour = np.repeat(grey[:, :, None], 3, axis=2)
    if labels is None or palette is None:
        return colour
    labels = np.kron(labels, np.ones((ENLARGE, ENLARGE), dtype=labels.dtype))
    shown = (labels > 0) & (labels <= len(palette))
    colour[shown] = (1 - SHARE) * colour[shown] + SHARE * palette[labels[shown] - 1]
    return colour


def png(colour: np.ndarray) -> str:
    """The image as a data URL, so that the page is self-contained."""
    from matplotlib.image import imsave

    stream = io.BytesIO()
    imsave(stream, np.clip(colour, 0, 1), format="png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
