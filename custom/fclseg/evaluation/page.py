"""The page of an evaluation: tables by hospital and by group, agreement of ejection fractions, the worst patients."""

import base64
import io
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from fclseg import __version__
from fclseg.anatomy.base import Anatomy
from fclseg.evaluation.scores import ScoreRow
from fclseg.evaluation.summary import BAD_DICE, BAD_EF, is_bad, table
from fclseg.files import write_text
from fclseg.finetune.agreement import bland_altman, write_agreement_plot
from fclseg.inference.measure import cavities

WORST = 5
LOADER = ChoiceLoader([PackageLoader("fclseg.evaluation", "."), PackageLoader("fclseg.inference.report", ".")])


def write_page(
    path: Path,
    figures: Mapping[str, Any],
    patients: Sequence[ScoreRow],
    missing: Sequence[str],
    sources: Mapping[tuple[str, str], Path],
    anatomy: Anatomy,
) -> None:
    """One self-contained file."""
    order = sorted(patients, key=lambda row: (row["dice"] is None, row["dice"]))
    content = {
        "tables": [
            (title, table(parts, anatomy))
            for title, parts in (
                ("All patients", {"all": figures["all"]}),
                ("By hospital", figures["hospitals"]),
                ("By group", figures["groups"]),
            )
            if parts
        ],
        "figures": figures,
        "patients": [(row, is_bad(row, anatomy)) for row in order],
        "names": anatomy.names,
        "cavities": [one.structure for one in cavities(anatomy)],
        "plot": _plot(patients, anatomy),
        "worst": [(row, _pictures(sources[row["hospital"], row["patient"]], row["patient"])) for row in order[:WORST]],
        "missing": missing,
        "bad_dice": BAD_DICE,
        "bad_ef": BAD_EF,
        "version": __version__,
        "today": date.today().isoformat(),
    }
    environment = Environment(loader=LOADER, autoescape=True, undefined=StrictUndefined)
    write_text(path, environment.get_template("evaluation.html").render(**content))


def _plot(patients: Sequence[ScoreRow], anatomy: Anatomy) -> str | None:
    """Bland-Altman plots of the ejection fractions."""
    agreement = {}
    for one in cavities(anatomy):
        pairs = [(row[f"ef_{one.structure}"], row[f"true_ef_{one.structure}"]) for row in patients]
        known = [pair for pair in pairs if None not in pair]
        if known:
            agreement[f"{one.structure} ejection fraction"] = bland_altman(known, "%")
    if not agreement:
        return None
    drawn = io.BytesIO()
    write_agreement_plot(drawn, agreement)
    return _data(drawn.getvalue())


def _pictures(results: Path, patient: str) -> list[str]:
    return [_data(path.read_bytes()) for path in sorted(results.glob(f"{patient}*_overlay.png"))]


def _data(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
