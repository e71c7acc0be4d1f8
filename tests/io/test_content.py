"""The digest of the content of a data set: the same for every storage, another for every other number."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton.io import Dataset, catalog, content
from dualnewton.io.content import content_digest
from small_sets import full, sparse_set
from tables import load


def test_the_digest_does_not_depend_on_the_storage(monkeypatch):
    known = sparse_set()
    X, y = full(known.X).astype(np.float32), known.y
    stored = sp.csr_array((X.ravel(), np.tile(np.arange(17), 40), np.arange(0, 681, 17)), shape=X.shape)
    digests = {content_digest(Dataset(each, y), classes=True) for each in (X, X.astype(float), sp.csr_array(X), stored)}
    monkeypatch.setattr(content, "BLOCK", 100)
    digests |= {content_digest(Dataset(X, y), classes=True), content_digest(Dataset(stored, y), classes=True)}
    assert len(digests) == 1
    assert stored.nnz == 680  # the data are not changed


def test_the_digest_depends_on_every_number():
    known = sparse_set()
    X, y = full(known.X), known.y
    moved, nudged, relabelled = X.copy(), X.copy(), y.copy()
    moved[0, [-1, -2]] = moved[0, [-2, -1]]
    nudged[0, -1] = np.nextafter(nudged[0, -1], 2.0)
    relabelled[:2] = relabelled[1::-1] if y[0] != y[1] else [-1.0, 1.0]
    sets = [(X, y), (moved, y), (nudged, y), (X, relabelled), (X[:, :-1], y), (np.pad(X, ((0, 0), (0, 1))), y)]
    for classes in (True, False):
        assert len({content_digest(Dataset(*each), classes=classes) for each in sets}) == len(sets)


def test_the_names_of_classes_do_not_count_and_numbers_do():
    known = sparse_set()
    named = replace(known, y=np.array(["a", "b", "c"])[np.unique(known.y, return_inverse=True)[1]])
    assert content_digest(named, classes=True) == content_digest(known, classes=True)
    assert content_digest(named, classes=False) == content_digest(known, classes=True)
    assert content_digest(replace(known, y=2.0 * known.y), classes=True) == content_digest(known, classes=True)
    assert content_digest(replace(known, y=2.0 * known.y), classes=False) != content_digest(known, classes=False)


@pytest.mark.parametrize("name", [entry.name for entry in catalog.FILES.values() if entry.contents])
def test_the_catalog_has_the_content_of_the_sets_of_the_documentation(name):
    entry = catalog.FILES[name]
    assert (entry.content(Dataset(*load(name))),) == entry.contents
