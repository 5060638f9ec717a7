"""A training shown in MLflow while it runs, at the cost of some seconds at most and never of the training."""

from __future__ import annotations

import logging

from parashot.errors import one_line
from parashot.records import Run
from parashot.tracking.limit import TimeIsUp
from parashot.tracking.publish import publish_live
from parashot.tracking.store import Store, StoreBusyError

log = logging.getLogger(__name__)


class Live:
    """Call it with the run so far, as often as there is news.

    A store that fails, or does not answer within seconds, is left alone from then on, with one warning: what
    it was not told, `publish` brings in.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._given_up = False

    def __call__(self, run: Run) -> None:
        """Show `run` as far as it has come."""
        if self._given_up:
            return
        try:
            publish_live(self.store, run)
        except StoreBusyError:  # with another process that publishes: the next call has all there is to say
            pass
        except (Exception, TimeIsUp) as error:
            self._given_up = True
            log.warning("MLflow shows no more of this training: %s", one_line(error))
