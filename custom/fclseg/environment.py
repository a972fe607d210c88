"""Environment variables for training processes, set before the start because libraries read them only once.

They affect only the speed of a step on the CPU.
"""

_KEEP_BYTES = str(1 << 30)

TRAINING_ENVIRONMENT = {
    # Otherwise waiting threads of one process keep cores busy that another one needs for training.
    "OMP_WAIT_POLICY": "passive",
    "KMP_BLOCKTIME": "0",
    # Otherwise glibc returns every large activation to the system and gets it back page by page in the next step.
    "MALLOC_TRIM_THRESHOLD_": _KEEP_BYTES,
    "MALLOC_MMAP_THRESHOLD_": _KEEP_BYTES,
}

COMMAND = "FCLSEG_COMMAND"
"""The command that started a run. It is recorded in the run's folder."""
