"""nnU-Net's own trainer with a budget of CPU time. ``nnunet.py`` copies it into the environment of nnU-Net.

Network, batch size, loss, augmentation and optimiser are nnU-Net's. Its learning rate falls over 1,000 epochs of 250
steps; here it falls along the same curve over the budget. There is nothing to choose by validation, so none is done.
"""

import os
import time

import torch
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer


class CpuBudgetTrainer(nnUNetTrainer):
    def run_training(self) -> None:
        self.on_train_start()
        self.network.train()
        budget, began, steps = float(os.environ["CPU_SECONDS"]), time.process_time(), 0
        while (used := (time.process_time() - began) / budget) < 1:
            for group in self.optimizer.param_groups:
                group["lr"] = self.initial_lr * (1 - used) ** 0.9
            self.train_step(next(self.dataloader_train))
            steps += 1
        self.print_to_log_file(f"{steps} steps of batch {self.batch_size} in {budget:.0f} s of CPU")
        torch.save({"steps": steps, "batch": self.batch_size}, os.path.join(self.output_folder, "budget.pt"))
        self.save_checkpoint(os.path.join(self.output_folder, "checkpoint_final.pth"))
