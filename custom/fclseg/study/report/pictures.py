"""The visual comparison: one slice with its ground truth and the prediction of every row, as inline images."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from fclseg.data.preprocess import UNLABELLED

SHARE = 0.55
ENLARGE = 6
MARGIN = 8


def comparison(study: dict[str, Any], root: Path) -> list[dict[str, Any]]:
    """One strip of pictures for each label count and reading: image, ground truth, then the rows of the table."""
    titles = {row["key"]: row["title"] for row in study["rows"]}
    palette = np.array([to_rgb(structure["colour"]) for structure in legend(study)])
    strips = []
    for reading in study["readings"]:
        for labels in study["labels"]:
            mine = [one for one in study["pictures"] if (one["labels"], one["reading"]) == (labels, reading)]
            files = [(titles[one["row"]], root / one["file"]) for one in mine]
            files = [(title, path) for title, path in files if path.exists()]
            if files:
                strips.append({"labels": labels, "reading": reading} | strip(files, palette))
    return strips


def legend(study: dict[str, Any]) -> list[dict[str, Any]]:
    """The structures of the images that were fine-tuned on, with their colours."""
    data = study["settings"].get("target") or study["settings"]["data"]
    return data["structures"] if data else []


def strip(files: list[tuple[str, Path]], palette: np.ndarray) -> dict[str, Any]:
    """The pictures of one strip, all cut to the same window around the ground truth."""
    arrays = []
    for title, path in files:
        with np.load(path) as file:
            arrays.append((title, dict(file)))
    first = arrays[0][1]
    image, truth = first["image"].astype(float), first["truth"]
    window = around(truth)
    pictures = [
        {"title": "Image", "source": png(paint(image[window]))},
        {"title": "Ground truth", "source": png(paint(image[window], truth[window], palette))},
    ]
    for title, one in arrays:
        pictures.append({"title": title, "source": png(paint(image[window], one["prediction"][window], palette))})
    return {"caption": str(first["caption"]), "pictures": pictures}


def around(truth: np.ndarray) -> tuple[slice, slice]:
    """A square window that holds every labelled pixel with some margin, or everything where nothing is labelled."""
    rows, columns = np.nonzero((truth > 0) & (truth < UNLABELLED))
    if len(rows) == 0:
        return slice(None), slice(None)
    centre = (int(rows.min() + rows.max()) // 2, int(columns.min() + columns.max()) // 2)
    half = int(max(np.ptp(rows), np.ptp(columns))) // 2 + MARGIN
    return tuple(slice(max(0, c - half), min(size, c + half)) for c, size in zip(centre, truth.shape, strict=True))


def paint(image: np.ndarray, labels: np.ndarray | None = None, palette: np.ndarray | None = None) -> np.ndarray:
    """Grey image [H, W] with coloured structures -> RGB [H, W, 3], enlarged: smooth image, crisp labels.

    ``palette`` [structures, 3] holds the colours of the label values 1, 2, ...
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
    """A data address, so that the page needs no second file."""
    from matplotlib.image import imsave

    stream = io.BytesIO()
    imsave(stream, np.clip(colour, 0, 1), format="png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
