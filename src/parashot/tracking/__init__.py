"""The one, idempotent way into MLflow; nothing outside this folder imports it.

What a study measured lies on disk as `records.Run`s. `publish` brings into MLflow what is not there yet, so
that the runs of what results/ has can be deleted there and made again. Every run carries its uuid as a tag
and is made once, also when DVC restored it from its cache, and when two processes publish at the same time.
A run is closed after all of it is there; the next call completes one that was cut off. A run that the user
deletes in MLflow stays deleted. `Live` shows a training while it runs, and a store that fails does not stop
it.

    study            one per set of results, params and report; links to its runs
    └── run          one per `records.Run`; restored from the cache, it stays under the study that made it
        └── run      by `Run.parent`
"""

from parashot.tracking.experiment import LoggableModel as LoggableModel
from parashot.tracking.publish import Live as Live
from parashot.tracking.publish import ModelLoader as ModelLoader
from parashot.tracking.publish import Published as Published
from parashot.tracking.publish import StudyRun as StudyRun
from parashot.tracking.publish import publish as publish
from parashot.tracking.store import Store as Store
from parashot.tracking.store import mlflow_is_installed as mlflow_is_installed
