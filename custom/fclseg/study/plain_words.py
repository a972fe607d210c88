"""Three sentences at the end of a study, in plain words: what was done, what was gained, what to type next."""

from fclseg.study.datasets import PHANTOM
from fclseg.study.document import ComparisonFigures, Entry, Study
from fclseg.study.report.page import established
from fclseg.study.tables import NOT_PRETRAINED


def plain_words(study: Study) -> list[str]:
    """Nothing for a table without fine-tunings. A gain is called one only if the test says so."""
    data = study["settings"]["data"]
    if not study["entries"] or data is None:
        return []
    kind = "phantom hospitals" if data["name"].startswith(PHANTOM) else "hospitals"
    gained = "; ".join([*_against_baseline(study), *_more_labels(study)])
    return [_done(study, kind, data["sites"]), *([f"Gained: {gained}."] if gained else []), _next(study)]


def _done(study: Study, kind: str, sites: dict[str, int]) -> str:
    patients, trained = sum(sites.values()), len(study["pretraining"])
    count = sum(entry["summary"]["fine_tunings"] for entry in study["entries"] if entry["labels"])
    together = f"trained {trained} network{'s' * (trained != 1)} together, without showing each other an image"
    return (
        f"Done: {len(sites)} {kind} with {patients} patients {together if trained else 'took part'}; "
        f"{count} trainings with few labelled patients were scored on patients that none of them had seen labels of."
    )


def _against_baseline(study: Study) -> list[str]:
    """Every number of labels of the pre-trained row with the most established gains, in the mode where it has them."""
    jobs = {row["key"]: row["job"] for row in study["rows"]}
    groups: dict[tuple[str, str], list[tuple[Entry, ComparisonFigures]]] = {}
    for entry in study["entries"]:
        if entry["comparison"] is not None and jobs[entry["row"]] not in NOT_PRETRAINED:
            groups.setdefault((entry["row"], entry["mode"]), []).append((entry, entry["comparison"]))
    if not groups:
        return []

    def gains(group: list[tuple[Entry, ComparisonFigures]]) -> tuple[int, float]:
        return sum(established(entry) for entry, _ in group), max(test["difference"] for _, test in group)

    best = max(groups.values(), key=gains)
    titles = {row["key"]: row["title"] for row in study["rows"]}
    who, against = titles[best[0][0]["row"]], titles[study["baseline"] or ""]
    base = {(entry["labels"], entry["mode"]): entry for entry in study["entries"] if entry["row"] == study["baseline"]}
    changes = []
    for entry, test in best:
        before, after = base[entry["labels"], entry["mode"]]["summary"]["mean"], entry["summary"]["mean"]
        p = f" (p = {test['p_holm']:.2g})" if established(entry) else " (not established)"
        changes.append(f"with {_labels(study, entry)} from {before:.2f} to {after:.2f}{p}")
    pairs = f"{best[0][1]['pairs']} paired comparisons"
    if gains(best)[0]:
        return [f"{who} instead of {against} raises Dice (1 is perfect) {' and '.join(changes)}, by {pairs}"]
    return [
        f"{pairs} establish no difference between {who} and {against}; Dice went {' and '.join(changes)}, and more "
        "folds, sites or seeds would tell"
    ]


def _labels(study: Study, entry: Entry) -> str:
    where = " at each hospital" if study["table"] == "federated" else ""
    return f"{entry['labels']} labelled patient{'s' * (entry['labels'] != 1)}{where}"


def _more_labels(study: Study) -> list[str]:
    """What labels add to each row that segments without any. Of two such rows, one may be the other's start, and the
    reader sees how much of a gain is the start's."""
    titles = {row["key"]: row["title"] for row in study["rows"]}
    sentences = []
    for without in (entry for entry in study["entries"] if entry["labels"] == 0):
        more = [one for one in study["entries"] if (one["row"], one["mode"]) == (without["row"], without["mode"])]
        figures = [f"{one['summary']['mean']:.2f} with {one['labels'] or 'no label'}" for one in more]
        sentences.append(f"{titles[without['row']]}: {', '.join(figures)}")
    return sentences


def _next(study: Study) -> str:
    methods = ",".join(row["key"] for row in study["rows"] if "@" not in row["key"])
    return (
        f"Next, with your own images: fclseg study {study['table']} --data FOLDER --sites-by centre --methods {methods}"
        "; to segment a scan right away: fclseg segment SCAN --out RESULTS."
    )
