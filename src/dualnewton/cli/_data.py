"""Data for a saved model: its features, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.io import Dataset


class OtherColumnsError(DualnewtonError):
    """The data do not have the features of the model."""


@dataclass(frozen=True)
class Columns:
    """The columns that a model needs.

    Attributes
    ----------
    d : int
        The number of features.
    names : sequence of str, optional
        The names of the features. If the data have names too, they may be in any order, and other columns are ignored.
    target : str, optional
        The column of the target.
    """

    d: int
    names: Sequence[str] | None = None
    target: str | int | bool | None = None

    def read(
        self, source: str, target: str | None = None, weights: str | int | None = None, *, labelled: bool = True
    ) -> Dataset:
        """Read the data of a file or a named set.

        Parameters
        ----------
        source : str
            A file or a name of the catalog.
        target, weights : str, optional
            The columns of the target and of the weights; by default the target is that of the model.
        labelled : bool
            True if a target is required; if False, a file without one is accepted.
        """
        targets: list[Any] = [self.target if target is None else target]
        if not labelled and target is None:
            targets.append(False)
        # A table may have columns that the model does not use; a sparse file may have no entry of the last features.
        widths = [self.d, None] if self.names is None else [None, self.d]
        errors: list[DualnewtonError] = []
        for place in targets:
            for n_features in widths:
                try:
                    return self.of(loaded(source, target=place, weights=weights, n_features=n_features))
                except DualnewtonError as error:
                    errors.append(error)
        # An error about the columns is more helpful than one about an attempt to read them.
        raise next((error for error in errors if isinstance(error, OtherColumnsError)), errors[0])

    def of(self, dataset: Dataset) -> Dataset:
        """Return the data with the features of the model, in the order of the model."""
        d = dataset.X.shape[1]
        if self.names is None or dataset.feature_names is None:
            if d != self.d:
                raise OtherColumnsError(f"{dataset.name} has {d} features, the model was fitted on {self.d}")
            return dataset
        if tuple(self.names) == tuple(dataset.feature_names):
            return dataset
        place = {name: k for k, name in enumerate(dataset.feature_names)}
        absent = [name for name in self.names if name not in place]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise OtherColumnsError(f"{dataset.name} has no column {absent[0]!r}{more}, which the model was fitted on")
        X = dataset.X[:, [place[name] for name in self.names]]
        return replace(dataset, X=X, feature_names=tuple(self.names))


def loaded(source: str, **options: Any) -> Dataset:
    """Read a file or a named set with a progress bar; the options are those of ``dualnewton.data.find``."""
    from dualnewton import io
    from dualnewton.cli._transfer import transfer

    with transfer(f"loading {source}") as progress:
        return io.find(source, progress=progress, **options)
