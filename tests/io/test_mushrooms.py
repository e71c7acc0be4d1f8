"""The mushrooms of the paper, built from the file of the UCI repository."""

import numpy as np
import pytest

from dualnewton import data
from dualnewton.io import folders, mushrooms
from dualnewton.io.mushrooms import ATTRIBUTES, CLASSES, COLUMNS, FILE, LEFT_OUT
from small_sets import full
from tables import load

FIRST = "p,x,s,n,t,p,f,c,n,k,e,e,s,s,w,w,p,w,o,p,k,s,u"
SECOND = "e,b,s,w,t,l,f,c,b,n,e,c,s,s,w,w,p,w,o,p,n,n,m"


def test_the_alphabets_have_112_letters_in_21_attributes():
    assert len(COLUMNS) == len(set(COLUMNS)) == 112
    assert len(ATTRIBUTES) == 22
    assert ATTRIBUTES["veil-type"] == "p"
    assert not any(name.startswith(LEFT_OUT) for name in COLUMNS)


def test_two_lines_by_hand(tmp_path):
    (tmp_path / FILE).write_text(f"{FIRST}\n{SECOND}\n")
    found = mushrooms.read(tmp_path / FILE)
    assert found.y.tolist() == [1.0, 2.0]
    for row, line in zip(full(found.X), (FIRST, SECOND), strict=True):
        letters = zip(ATTRIBUTES, line.split(",")[1:], strict=True)
        names = {f"{name}={letter}" for name, letter in letters if name != LEFT_OUT}
        assert {COLUMNS[j] for j in np.flatnonzero(row)} == names
        assert set(row) == {0.0, 1.0}


def uci_text(X, y):
    """The file that a one-hot matrix came from: attributes are runs of columns of which each row has one."""
    letters_of = {label: letter for letter, label in CLASSES.items()}
    columns, at = [np.array([letters_of[label] for label in y])], 0
    for name, letters in ATTRIBUTES.items():
        if name == LEFT_OUT:
            columns.append(np.full(len(y), "?"))
            continue
        group = X[:, at : at + len(letters)]
        np.testing.assert_array_equal(group.sum(axis=1), 1.0)
        columns.append(np.array(list(letters))[group.argmax(axis=1)])
        at += len(letters)
    assert at == X.shape[1]
    return "\n".join(map(",".join, zip(*columns, strict=True))) + "\n"


def test_the_published_matrix_comes_back_from_its_letters(tmp_path, monkeypatch):
    X, y = load("mushrooms")
    (tmp_path / FILE).write_text(uci_text(full(X), y))
    monkeypatch.setenv(folders.DATA, str(tmp_path))
    monkeypatch.setenv(folders.CACHE, str(tmp_path / "cache"))
    found = data.load("mushrooms")
    assert found.X.shape == (8124, 112)
    np.testing.assert_array_equal(full(found.X), full(X))
    np.testing.assert_array_equal(found.y, y)
    assert found.feature_names == COLUMNS


DAMAGED = {
    "another class": ("x" + FIRST[1:], "expected e or p"),
    "too few letters": (FIRST[:-2], "expected e or p and 22 letters"),
    "another letter": (FIRST[:-1] + "z", "habitat must be one of dglmpuw, found 'z'"),
    "two letters": (FIRST + "u", "habitat must be one of"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_line_is_named(tmp_path, name):
    line, message = DAMAGED[name]
    (tmp_path / FILE).write_text(f"{FIRST}\n\n{line}\n")
    with pytest.raises(data.DataError, match=f"line 3: .*{message}"):
        mushrooms.read(tmp_path / FILE)
