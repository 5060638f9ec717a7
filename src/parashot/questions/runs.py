"""How a measurement becomes runs for MLflow: one parent, and a child for each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parashot.params import Params, select
from parashot.records import Metric, Run, Status, now_ms


class StageRuns:
    """Collects the runs of one measuring stage; the first is the parent of all others.

    `knobs` are the sections and keys of params that the stage depends on: a run restored from the cache must
    not show others.
    """

    def __init__(
        self,
        name: str,
        stage: str,
        params: Params,
        knobs: Sequence[str],
        tags: Mapping[str, str],
        artifacts: Sequence[str],
    ) -> None:
        self.stage, self.tags, self.start_ms = stage, dict(tags), now_ms()
        self._name, self._params, self._artifacts = name, select(params, knobs), tuple(artifacts)
        self._children: list[Run] = []
        self._uuid = Run(name, stage, "ok", 0, 0).uuid

    def child(
        self,
        name: str,
        params: Mapping[str, object],
        series: Mapping[str, Sequence[float]],
        numbers: Mapping[str, float | None],
        tags: Mapping[str, str] | None = None,
        reason: str = "",
        status: Status = "ok",
    ) -> None:
        """Add one setting: `series` are its repeated measurements, `numbers` its single ones."""
        metrics = [
            Metric(key, float(value), step, self.start_ms)
            for key, values in series.items()
            for step, value in enumerate(values)
        ]
        metrics += [
            Metric(key, float(value), 0, self.start_ms) for key, value in numbers.items() if value is not None
        ]
        run = Run(
            name=name,
            stage=self.stage,
            status=status,
            start_ms=self.start_ms,
            end_ms=now_ms(),
            params={key: str(value) for key, value in params.items()},
            tags={**self.tags, **(tags or {}), **({"reason": reason} if reason else {})},
            metrics=tuple(metrics),
            parent=self._uuid,
        )
        self._children.append(run)

    def all(self, numbers: Mapping[str, float | int | str | None]) -> list[Run]:
        """The parent, with those of `numbers` that are numbers, and the children."""
        metrics = tuple(
            Metric(key, float(value)) for key, value in numbers.items() if isinstance(value, int | float)
        )
        parent = Run(
            name=self._name,
            stage=self.stage,
            status="ok",
            start_ms=self.start_ms,
            end_ms=now_ms(),
            params=self._params,
            tags=self.tags,
            metrics=metrics,
            artifacts=self._artifacts,
            uuid=self._uuid,
        )
        return [parent, *self._children]
