"""The mushrooms data set of the paper, read from agaricus-lepiota.data of the UCI repository.

Each line has 23 letters: the class (e: edible, p: poisonous) and 22 attributes. Every value of every attribute becomes a column
of zeros and ones, except for stalk-root, which is missing in 2480 lines. Of the values in the documentation, 112 occur; veil-type
has only one, so its column is all ones. The labels are those of the LIBSVM file: 1 for poisonous, 2 for edible.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dualnewton.io.dataset import DataError, Dataset
from dualnewton.io.streams import reading

FILE = "agaricus-lepiota.data"

CLASSES = {"p": 1.0, "e": 2.0}

LEFT_OUT = "stalk-root"

ATTRIBUTES = {
    "cap-shape": "bcfksx",
    "cap-surface": "fgsy",
    "cap-color": "bcegnpruwy",
    "bruises": "ft",
    "odor": "acflmnpsy",
    "gill-attachment": "af",
    "gill-spacing": "cw",
    "gill-size": "bn",
    "gill-color": "beghknopruwy",
    "stalk-shape": "et",
    LEFT_OUT: "bcer?",
    "stalk-surface-above-ring": "fksy",
    "stalk-surface-below-ring": "fksy",
    "stalk-color-above-ring": "bcegnopwy",
    "stalk-color-below-ring": "bcegnopwy",
    "veil-type": "p",
    "veil-color": "nowy",
    "ring-number": "not",
    "ring-type": "eflnp",
    "spore-print-color": "bhknoruwy",
    "population": "acnsvy",
    "habitat": "dglmpuw",
}
"""The attributes in the order of the file, with the letters that occur."""

COLUMNS = tuple(f"{name}={letter}" for name, letters in ATTRIBUTES.items() if name != LEFT_OUT for letter in letters)
"""The names of the 112 columns of X."""


def read(path: Path) -> Dataset:
    """Read the UCI file into a sparse matrix of zeros and ones."""
    place = {name: j for j, name in enumerate(COLUMNS)}
    columns: list[int] = []
    labels: list[float] = []
    with reading(path) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            label, *letters = line.decode("ascii", "replace").strip().split(",")
            if len(letters) != len(ATTRIBUTES) or label not in CLASSES:
                raise DataError(
                    f"{path}, line {number}: expected e or p and {len(ATTRIBUTES)} letters, found {line[:50]!r}"
                )
            for (name, known), letter in zip(ATTRIBUTES.items(), letters, strict=True):
                if len(letter) != 1 or letter not in known:
                    raise DataError(f"{path}, line {number}: {name} must be one of {known}, found {letter[:10]!r}")
                if name != LEFT_OUT:
                    columns.append(place[f"{name}={letter}"])
            labels.append(CLASSES[label])
    if not labels:
        raise DataError(f"{path}: holds no examples")
    width = len(ATTRIBUTES) - 1
    starts = np.arange(0, len(columns) + 1, width, dtype=np.int32)
    X = sp.csr_array(
        (np.ones(len(columns)), np.array(columns, dtype=np.int32), starts), shape=(len(labels), len(COLUMNS))
    )
    target = "the first letter of each line"
    return Dataset(X, np.array(labels), feature_names=COLUMNS, name="mushrooms", target=target)
