"""Ray Tune: trainings as trials, each on whichever node is idle. The only module that imports Ray.

Ray gives what a lost node was doing to another one. A trial is a process of its own. On this machine alone,
every port is open on the loopback only.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parashot.errors import DeviceError, one_line
from parashot.hardware import usable_threads
from parashot.sweep.trial import Trial, attempt, write_files

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray would report its use to its makers
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # TensorBoard and the like: results are records here
    "RAY_AIR_NEW_OUTPUT": "0",  # which prints tables, even when told to be quiet
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends a sweep as it ends every other command
}
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Nodes:
    """Where runs go, and what each of them takes."""

    address: str | None = None  # HOST:PORT of a running cluster; None: this machine alone
    cpus: int = 1
    gpus: int = 0
    retries: int = 3  # how often a run is begun again when its process or node is lost


@contextmanager
def connected(nodes: Nodes) -> Iterator[Callable[[Any], Any] | None]:
    """Connect to the cluster at `nodes.address`, or start one of this machine alone, and end it afterwards.

    Yield what keeps a value for all nodes; None on one machine. Every node runs this machine's code. Raises
    `DeviceError` where Ray is not installed, no cluster answers, or no node has what a run takes.
    """
    os.environ.update(_SETTINGS)
    if nodes.address is None:  # stay on the loopback, as Ray does by itself on the systems it names here
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError as error:
        raise DeviceError('Ray is not installed; pip install "parashot[sweep]"') from error
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if nodes.address is None:
            ray.init("local", include_dashboard=False, num_cpus=usable_threads(), **quiet)
        else:
            _join(nodes.address, quiet)
        _check_room(nodes)
        yield ray.put if nodes.address else None
    finally:
        ray.shutdown()


def run_trials(trials: Mapping[Path, Trial], nodes: Nodes, ended: Callable[[Path, str], None]) -> None:
    """Run every trial, and write its files to its folder on this machine.

    `ended` is called with the folder and the reason why it has no result, empty where it has one.
    """
    import ray
    from ray import tune
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what fails is told by `ended`
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    folders = list(trials)
    write: Any = ray.remote(num_cpus=0)(write_files).options(scheduling_strategy=here)

    class Training(tune.Trainable):
        def setup(self, config: dict[str, Any], **shared: Any) -> None:
            self.folder, self.trial = shared["trials"][config["index"]]

        def step(self) -> dict[str, Any]:
            if nodes.gpus == 0:
                os.environ["CUDA_VISIBLE_DEVICES"] = ""
            reason = attempt(self.trial, lambda files: ray.get(write.remote(self.folder, files)), ray.get)
            return {"done": True, "reason": reason}

    class Ended(tune.Callback):
        def __init__(self, ended: Callable[[Path, str], None]) -> None:
            self.ended = ended

        def __getstate__(self) -> dict[str, Any]:
            return {}  # Tune saves callbacks, to restore a sweep; here the result folders do that

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            self.ended(folders[trial.config["index"]], trial.last_result["reason"])

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            lost = f"lost with its process or node, {nodes.retries} retries included"
            self.ended(folders[trial.config["index"]], lost)

    placed = [(folder.resolve(), trial) for folder, trial in trials.items()]
    shared = tune.with_parameters(Training, trials=placed)
    with tempfile.TemporaryDirectory() as states:
        tune.Tuner(
            tune.with_resources(shared, {"cpu": nodes.cpus, "gpu": nodes.gpus}),
            param_space={"index": tune.grid_search(list(range(len(placed))))},
            run_config=tune.RunConfig(
                storage_path=states,
                verbose=0,
                callbacks=[Ended(ended)],
                failure_config=tune.FailureConfig(max_failures=nodes.retries),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()


def _join(address: str, quiet: dict[str, Any]) -> None:
    import ray

    try:
        host, _, port = address.rpartition(":")  # Ray itself would try for a minute
        socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS).close()
        ray.init(address, runtime_env={"py_modules": [str(Path(__file__).parents[1])]}, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise DeviceError(
            f"--address {address}: no Ray cluster answers there ({one_line(error)}); start one with "
            "`ray start --head`, run the sweep on one of its machines, and have the same token on all"
        ) from error


def _check_room(nodes: Nodes) -> None:
    """Raise `DeviceError` where no node is large enough: Ray would wait for one for ever."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    wanted = {"CPU": nodes.cpus, "GPU": nodes.gpus}
    if not any(all(each.get(kind, 0) >= count for kind, count in wanted.items()) for each in alive):
        raise DeviceError(
            f"none of {len(alive)} nodes has {nodes.cpus} CPUs and {nodes.gpus} GPUs for a run; set "
            "--cpus-per-run and --gpus-per-run to what one has, or start a larger one"
        )
