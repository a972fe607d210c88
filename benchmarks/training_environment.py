"""Measures how much of a fine-tuning step the variables of ``fclseg.environment`` save. Prints one line.

    python benchmarks/training_environment.py [--steps 100] [--repeats 3]

Processes with and without them alternate, so that both see the same machine load. The best processor time counts.
"""

import argparse
import os
import subprocess
import sys

from fclseg.environment import TRAINING_ENVIRONMENT

STEP = """
import time, torch
from fclseg.networks.unet import UNet
from fclseg.presets import get_preset
preset = get_preset("small")
network = UNet(preset.networks.channels, 4).to(memory_format=torch.channels_last)
images = torch.rand(preset.finetuning.batch_size, 1, preset.images.size, preset.images.size)
for step in range({steps} + 5):
    if step == 5:
        started = time.process_time()
    network(images).square().mean().backward()
print((time.process_time() - started) / {steps})
"""


def step_seconds(steps: int, variables: dict[str, str]) -> float:
    plain = {name: value for name, value in os.environ.items() if name not in TRAINING_ENVIRONMENT}
    command = [sys.executable, "-c", STEP.format(steps=steps)]
    environment = {**plain, "OMP_NUM_THREADS": "1", **variables}
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="steps per process (default 100)")
    parser.add_argument("--repeats", type=int, default=3, help="processes of each kind (default 3)")
    options = parser.parse_args()
    turns = [
        (step_seconds(options.steps, {}), step_seconds(options.steps, TRAINING_ENVIRONMENT))
        for _ in range(options.repeats)
    ]
    without, with_them = (min(times) for times in zip(*turns, strict=True))
    print(
        f"training environment: {1e3 * without:.1f} ms of processor time per step, {1e3 * with_them:.1f} ms with them, "
        f"{1 - with_them / without:.0%} saved"
    )


if __name__ == "__main__":
    main()
