"""What the study of 2020 printed: the figures that the report holds beside its own.

2 × Xeon Gold 5115 (40 hardware threads), 4 × Tesla P40, PyTorch 1.6; 5-way, 1 shot, batchsz 30, 224 pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

HARDWARE_THREADS = 40

BEST_VALIDATION, BEST_SECONDS = 0.582, 89_856
"""The best of DDP's many validations of 200 episodes, and its whole time."""


@dataclass(frozen=True)
class StudyLoaderRow:
    """A row of its Table 2. It prints no worker counts: they follow from speedup / efficiency."""

    workers: int
    seconds: float
    speedup: float
    efficiency: float


TABLE_2 = (
    StudyLoaderRow(2, 0.00081, 0.54, 0.27),
    StudyLoaderRow(8, 0.00056, 0.78, 0.098),
    StudyLoaderRow(16, 0.00044, 1.0, 0.0625),
    StudyLoaderRow(20, 0.00042, 1.04, 0.0523),
    StudyLoaderRow(32, 0.00037, 1.18, 0.0371),
    StudyLoaderRow(50, 0.00027, 1.62, 0.0325),
    StudyLoaderRow(60, 0.00049, 0.89, 0.0149),
    StudyLoaderRow(70, 0.00126, 0.35, 0.005),
)
"""Against T_1 = 0.00044 s without workers. 0.4 ms cannot decode 300 images: what was timed is not loading."""


@dataclass(frozen=True)
class StudyClaim:
    """A sentence of the study, and the figure it gave for it."""

    id: str
    claim: str
    figure: str


CLAIMS = (
    StudyClaim(
        "loader-optimum",
        "Loading is fastest with about as many workers as hardware threads.",
        "best at 50 workers of 40 threads: 1.62×",
    ),
    StudyClaim("loader-few", "A few workers are slower than none.", "2 workers: 0.54×"),
    StudyClaim("loader-many", "Far more workers than threads are slower.", "70 workers of 40 threads: 0.35×"),
    StudyClaim("loader-memory", "Memory grows with the workers.", "no figure"),
    StudyClaim(
        "ddp-beats-dp",
        "DistributedDataParallel is faster than DataParallel.",
        "137,172 s (DP) against 89,856 s (DDP): 1.53×",
    ),
    StudyClaim(
        "accuracy-parity",
        "The accuracy is the same.",
        "DP 0.566, DDP 0.582: each the best of many validations",
    ),
    StudyClaim(
        "small-batch",
        "batchsz 2 is slower than batchsz 30 under DDP, so slow that it was stopped.",
        "stopped after 89,856 s",
    ),
    StudyClaim("large-batch", "batchsz 60 is faster than batchsz 30.", "73,824 s against 89,856 s: 1.22×"),
    StudyClaim("dp-imbalance", "Under DP the first device carries more memory and work.", "no figure"),
    StudyClaim("ddp-memory", "DDP needs more memory per device than DP.", "no figure"),
    StudyClaim(
        "ddp-workers-zero",
        "Under DDP, num_workers must be 0, because data are pickled twice.",
        "an error that was seen",
    ),
    StudyClaim("concat-serial", "Joining support and query cannot be parallelised.", "no figure"),
    StudyClaim("copy-overlap", "Copies to the device can be hidden behind computing.", "no figure"),
    StudyClaim("threads-gil", "Python threads cannot use several cores for this.", "no figure"),
    StudyClaim("ddp-sync", "After a DDP step all replicas hold the same parameters.", "no figure"),
    StudyClaim("overlap", "Communication can be hidden behind the backward pass.", "no figure"),
    StudyClaim("comm-share", "The share of time in communication falls as batchsz grows.", "no figure"),
    StudyClaim(
        "layer-split-sync",
        "Splitting over layers is not worth its synchronisation: it is slower than data parallelism.",
        "no figure",
    ),
    StudyClaim(
        "channel-split-sync",
        "Splitting inside layers is not worth its synchronisation: it is slower than data parallelism.",
        "no figure",
    ),
    StudyClaim(
        "accumulation-equals", "k accumulated batches equal one that is k times as large.", "no figure"
    ),
    StudyClaim("checkpointing-trades", "Gradient checkpointing trades time for memory.", "no figure"),
    StudyClaim(
        "warmup-large-only", "Only very large batches need a warm-up of the learning rate.", "no figure"
    ),
)


@dataclass(frozen=True)
class StudyComparisonRow:
    """A row of its Table 1."""

    aspect: str
    dp: str
    ddp: str


TABLE_1 = (
    StudyComparisonRow("machines", "one", "one or many"),
    StudyComparisonRow("model over several GPUs", "no", "yes"),
    StudyComparisonRow("communication", "scatter inputs, gather outputs", "scatter inputs, all-reduce"),
    StudyComparisonRow("kind of parallelism", "data", "data and model"),
    StudyComparisonRow("processes and threads", "one process, many threads", "many processes"),
)
