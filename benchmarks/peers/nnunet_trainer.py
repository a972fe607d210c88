"""nnU-Net's own trainer with a budget of CPU time. ``nnunet.py`` copies it into the environment of nnU-Net.

Network, loss, augmentation and optimiser are nnU-Net's. Its learning rate falls over 1,000 epochs of 250 steps; here it
falls along the same curve over the budget. There is nothing to choose by validation, so none is done.
"""

import json
import os
import time

from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer


class CpuBudgetTrainer(nnUNetTrainer):
    def _set_batch_size_and_oversample(self) -> None:
        """Planned for a GPU of 8 GB, a batch fills the budget with a single step; a smaller one may be asked for."""
        super()._set_batch_size_and_oversample()
        self.batch_size = int(os.environ["PEER_BATCH"] or self.batch_size)

    def run_training(self) -> None:
        self.on_train_start()
        self.network.train()
        budget, began, steps = float(os.environ["PEER_CPU_SECONDS"]), time.process_time(), 0
        while (used := (time.process_time() - began) / budget) < 1:
            for group in self.optimizer.param_groups:
                group["lr"] = self.initial_lr * (1 - used) ** 0.9
            self.train_step(next(self.dataloader_train))
            steps += 1
        spent = {"steps": steps, "batch": self.batch_size, "cpu_seconds": time.process_time() - began}
        with open(os.path.join(self.output_folder, "budget.json"), "w") as stream:
            json.dump(spent, stream)
        self.save_checkpoint(os.path.join(self.output_folder, "checkpoint_final.pth"))

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        """Not wanted: it predicts the labelled patients, which takes longer than a short training."""
