"""Runs one cell. This happens in a worker process, where torch may be imported."""

import contextlib
import io
import time
import warnings
from pathlib import Path

import numpy as np

from fclseg.data.sites import Splits
from fclseg.engine.run_folder import GLOBAL
from fclseg.errors import FCLSegError
from fclseg.files import private_folder
from fclseg.finetune.dataset import open_labelled
from fclseg.finetune.evaluation import Evaluation, VolumeEvaluator
from fclseg.finetune.protocols import Draw, draw
from fclseg.finetune.train import FinetuneResult, FinetuneSpec
from fclseg.methods.exchange import SHIPPED
from fclseg.networks.model_file import load_model
from fclseg.resources import shipped_model
from fclseg.study.cache import Cache
from fclseg.study.cells import FROZEN, Cell, Finetuning, Pretraining
from fclseg.study.document import FinetuningResult, PretrainingResult
from fclseg.study.federated_finetuning import finetune_federated
from fclseg.study.fixed_training import train_fixed
from fclseg.study.shown_slice import shown_slice


def run_cell(cell: Cell, cache: Cache) -> FinetuningResult | PretrainingResult:
    """The result of a cell as plain values, ready to be stored."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="monai")
    if isinstance(cell, Pretraining):
        from fclseg.study.pretraining import run_pretraining  # imports nvflare, which most cells do not need

        return run_pretraining(cell, cache)
    splits = Splits.load(cell.data.splits)
    chosen = draw(cell.protocol, splits, cell.site, cell.fold, cell.labels, cell.seed)
    if cell.labels == 0:
        losses: list[float] = []
        evaluator, evaluation = untrained(cell, starts_of(cell, cache), splits)
    elif cell.protocol == "federated":
        evaluator, losses = finetune_federated(cell, start_of(cell, cache), chosen)
        evaluation = evaluator.run()
    else:
        result = finetune_here(cell, start_of(cell, cache), chosen)
        evaluator, losses, evaluation = result.evaluator, result.losses, result.evaluation
    if shows_picture(cell, splits):
        save_picture(cache.attachment(cell.key, ".npz"), evaluator, chosen.validation)
    return {
        "dice": evaluation.mean_dice,
        "metrics": evaluation.means(),  # type: ignore[typeddict-item]
        "volumes": evaluation.rows,
        "labelled": list(chosen.patients),
        "losses": [round(loss, 5) for loss in losses],
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def starts_of(cell: Finetuning, cache: Cache) -> dict[str, Path]:
    """By site, the encoders or whole networks that a fine-tuning may start from: the one of all sites, or one for each
    site if each trained alone. Empty for random weights."""
    if cell.job == SHIPPED:
        return {GLOBAL: shipped_model(cell.data.anatomy.bundle, cell.preset.name)}
    if cell.pretraining is None:
        return {}
    trained: PretrainingResult | None = cache.get(cell.pretraining.key)
    if trained is None:
        raise FCLSegError(f"the result of {cell.pretraining.describe()} is gone: run the same command again")
    found = trained["networks"] if cell.whole_network else trained["encoders"]
    return {site: cache.root / path for site, path in found.items()}


def start_of(cell: Finetuning, cache: Cache) -> Path | None:
    """The encoder or the whole network that a fine-tuning starts from. If every site has its own (Local CL), it is that
    of the fine-tuning site. Protocols without a site take that of a different site in each fold."""
    starts = starts_of(cell, cache)
    if not starts or GLOBAL in starts:
        return starts.get(GLOBAL)
    names = sorted(starts)
    return starts[cell.site if cell.site in starts else names[cell.fold % len(names)]]


def untrained(cell: Finetuning, starts: dict[str, Path], splits: Splits) -> tuple[VolumeEvaluator, Evaluation]:
    """Score the pre-trained network unchanged, without any labels. If each site has its own network, score it on the
    held-out patients of its site. Returns the scores of all patients and the evaluator of the first site."""
    anatomy, images = cell.data.anatomy, cell.preset.images
    store = open_labelled(
        str(cell.data.root), anatomy, images.size, images.spacing(anatomy), images.windows, progress=False
    )
    evaluators = [
        VolumeEvaluator(
            load_model(path, anatomy.name).network,
            store,
            splits.held_out[site][cell.fold] if site else splits.validation(cell.fold),
            anatomy,
            refined=cell.preset.finetuning.refined,
        )
        for site, path in sorted(starts.items())
    ]
    evaluation, *others = [evaluator.run() for evaluator in evaluators]
    for other in others:
        evaluation.rows += other.rows
    return evaluators[0], evaluation


def finetune_here(cell: Finetuning, start: Path | None, chosen: Draw) -> FinetuneResult:
    """Fine-tune in one place, and score the held-out patients of every site."""
    spec = FinetuneSpec(
        dataset_dir=cell.data.root,
        train_patients=chosen.patients,
        validation_patients=chosen.validation,
        unlabelled_patients=chosen.unlabelled,
        anatomy=cell.data.anatomy,
        preset=cell.preset.name,
        pretrained_encoder=None if cell.whole_network else start,
        pretrained_network=start if cell.whole_network else None,
        freeze_encoder=cell.mode == FROZEN,
        seed=cell.seed,
        hd95=True,
        overrides={"settings": cell.preset},
    )
    with contextlib.redirect_stdout(io.StringIO()):  # no progress bars: several workers share one terminal
        return train_fixed(spec)


def shows_picture(cell: Finetuning, splits: Splits) -> bool:
    """The first fold of each row, label count and mode saves a prediction for the visual comparison."""
    return cell.fold == 0 and cell.site in (None, next(iter(splits.sites)))


def save_picture(path: Path, evaluator: VolumeEvaluator, validation: tuple[str, ...]) -> None:
    """Image, ground truth and prediction of one slice of the held-out patients."""
    store = evaluator.store
    volume, number = shown_slice(store, validation, evaluator.anatomy)
    private_folder(path.parent)
    np.savez_compressed(
        path,
        image=np.asarray(store.images[number], dtype=np.float16),
        truth=np.asarray(store.labels[number]),
        prediction=evaluator.predict(volume.start, volume.stop)[number - volume.start],
        caption=np.array(f"{volume.patient}, {volume.phase or 'frame'} slice {number - volume.start + 1}"),
    )
