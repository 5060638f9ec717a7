"""The one, idempotent way into MLflow; nothing outside this folder imports it.

What a study measured lies on disk as `records.Run`s. `publish` brings into MLflow what is not there yet, so
that MLflow is a view that can be deleted and made again: every run carries the tag `parashot.uuid` and is
made once, also when DVC restored it from its cache, and when two processes publish at the same time. A run
is closed only after all of it is there; one that was cut off half-way is completed by the next call. What
the user deletes in MLflow stays deleted. A store that fails costs a training seconds, and no result.

    study            one per set of results and params: report, summary, study.json, links to its runs
    └── run          one per `records.Run`; restored from the cache, it stays under the study that made it
        └── run      by `Run.parent`
"""

from parashot.tracking.experiment import LoggableModel
from parashot.tracking.live import Live
from parashot.tracking.publish import Published, publish, publish_live
from parashot.tracking.store import Store
from parashot.tracking.study import Study

__all__ = ["Live", "LoggableModel", "Published", "Store", "Study", "publish", "publish_live"]
