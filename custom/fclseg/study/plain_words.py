"""Three sentences at the end of a study, in plain words: what was done, what was gained, what to type next."""

from fclseg.study.document import Entry, Study
from fclseg.study.report.page import established
from fclseg.study.tables import NOT_PRETRAINED


def plain_words(study: Study) -> list[str]:
    """Nothing for a table without fine-tunings. A gain is called one only if the test says so."""
    data = study["settings"]["data"]
    if not study["entries"] or data is None:
        return []
    return [_done(study, data["sites"]), *_gained(study), _next(study)]


def _done(study: Study, sites: dict[str, int]) -> str:
    patients, trained = sum(sites.values()), len(study["pretraining"])
    count = sum(entry["summary"]["fine_tunings"] for entry in study["entries"])
    together = f"trained {trained} network{'s' * (trained != 1)} together, without showing each other an image"
    return (
        f"Done: {len(sites)} hospitals with {patients} patients {together if trained else 'took part'}; "
        f"{count} trainings with few labelled patients were scored on patients that none of them had seen labels of."
    )


def _gained(study: Study) -> list[str]:
    """The largest established gain of a pre-trained row over the baseline, and what labels add to it."""
    titles = {row["key"]: row["title"] for row in study["rows"]}
    jobs = {row["key"]: row["job"] for row in study["rows"]}
    base = {(entry["labels"], entry["mode"]): entry for entry in study["entries"] if entry["row"] == study["baseline"]}
    rows = [
        entry
        for entry in study["entries"]
        if entry["comparison"] is not None and jobs[entry["row"]] not in NOT_PRETRAINED
    ]
    if not rows:
        return []
    best = max(rows, key=lambda entry: (established(entry), _difference(entry)))
    place = (best["labels"], best["mode"])
    who, against = titles[best["row"]], titles[study["baseline"] or ""]
    figures = f"{base[place]['summary']['mean']:.2f} to {best['summary']['mean']:.2f}"
    labels = f"{best['labels']} labelled patient{'s' * (best['labels'] != 1)}"
    comparison = best["comparison"]
    assert comparison is not None
    pairs = f"{comparison['pairs']} paired comparisons"
    if established(best):
        return [
            f"Gained: with {labels}, {who} raises Dice from {figures} (1 is perfect) against {against}; "
            f"{pairs}, p = {comparison['p_holm']:.2g} after correction."
        ]
    return [
        f"Gained: with {labels}, Dice goes from {figures} with {who} instead of {against}, but {pairs} do not "
        "establish a difference; more folds, sites or seeds would."
    ]


def _difference(entry: Entry) -> float:
    return entry["comparison"]["difference"] if entry["comparison"] else 0.0


def _next(study: Study) -> str:
    methods = ",".join(row["key"] for row in study["rows"] if "@" not in row["key"])
    return (
        f"Next, with your own images: fclseg study {study['table']} --data FOLDER --sites-by centre --methods {methods}"
        "; to segment a scan right away: fclseg segment SCAN --out RESULTS."
    )
