"""``python -m fclseg.labelling.train_job LABELS START OUT``: fine-tune on all labelled slices of a folder.

It always starts from the same network START and uses all labels, so the result depends on the labels alone and not on
how often somebody trained. Progress goes to the standard output as lines of JSON.
"""

import json
import sys
from pathlib import Path

from fclseg.errors import FCLSegError


def train(labels: Path, start: Path, out: Path) -> None:
    from ignite.engine import Events

    from fclseg.anatomy.folders import read_folder
    from fclseg.finetune.train import FinetuneSpec, run_steps, training_config
    from fclseg.networks.model_file import load_model

    model = load_model(start)
    patients = sorted({volume.patient for volume in read_folder(labels) if volume.label is not None})
    if not patients:
        raise FCLSegError(f"{labels}: no slice is labelled yet; label some and train then")
    spec = FinetuneSpec(
        labels,
        tuple(patients),
        (),  # the person looks at the result; every label is used
        anatomy=model.anatomy,
        preset=model.preset,
        pretrained_network=start,
    )
    config = training_config(spec, out, progress=False)
    trainer = config.get_parsed_content("train#trainer")
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: _tell(engine.state.epoch, engine.state.max_epochs))
    run_steps(config)


def _tell(step: int, of: int) -> None:
    print(json.dumps({"step": step, "of": of}), flush=True)


def main() -> int:
    labels, start, out = map(Path, sys.argv[1:4])
    try:
        train(labels, start, out)
    except FCLSegError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
