"""The catalog of named data sets: their sizes, their download addresses, and their loading."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dualnewton._warning import warn
from dualnewton.errors import DataWarning
from dualnewton.files.replacing import replacing
from dualnewton.io import generated, mushrooms
from dualnewton.io.arrays import require_one_each, vector_file
from dualnewton.io.content import content_digest
from dualnewton.io.dataset import DataError, Dataset
from dualnewton.io.download import DownloadError, download
from dualnewton.io.folders import CACHE, DATA, cache_folder, own_file
from dualnewton.io.formats import format_of, read
from dualnewton.io.gathered import gather
from dualnewton.io.pieces import Pieces
from dualnewton.io.source import ReadOptions, check_width, refuse_zero_based, separate_files
from dualnewton.io.streams import Progress
from dualnewton.io.tables import source as table

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
UCI = "https://archive.ics.uci.edu/"

CLASSIFICATION, REGRESSION = "classification", "regression"


@dataclass(frozen=True)
class Origin:
    """A file of a public collection."""

    url: str  # download address
    sha256: str | None = None  # checksum of the file; None if it is not known
    member: str | None = None  # name of the table inside the file, if that is a zip archive
    # Digest of the numbers and classes in the file (:func:`content_digest`); None if it is not known.
    content: str | None = None

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Entry:
    """A named data set: its kind, its size, and the files that it can be read from, the preferred one first."""

    name: str
    kind: str
    n: int
    d: int
    origins: tuple[Origin, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that the set can be read from."""
        return tuple(origin.file for origin in self.origins)

    @property
    def contents(self) -> tuple[str, ...]:
        """The digests of the content that are known."""
        return tuple(origin.content for origin in self.origins if origin.content is not None)

    def content(self, data: Dataset) -> str:
        """Return the digest of the content of a data set of this kind."""
        return content_digest(data, classes=self.kind == CLASSIFICATION)


_CONTENTS = {
    "mushrooms": "dcc3291047f09bf21a21352157a71711bd44b83dbb12d676b2c7b9015e828bbd",
    "a9a": "82714d4c94c4c29b0fab3bd6edf5e68a5a511624281781f706a01a74e189570f",
    "w8a": "1facad4d21b289ddf7e2ee346d54d3cef8af405c1b71be39f5a52f43afc85238",
    "phishing": "9a8818b597f5b1229d807e70004c73fa432fda71226277235cf32a7cf8c15d7a",
    "splice": "26d8b04899033f4e7f163ab8285c8c85fc6449fa9c0d784625ea07eb2fc33264",
    "madelon": "1545a6116a450f7a61f0db88d31a1b821764fc3f5d60db18a411e831cbfde107",
    "colon_cancer": "7110267c39b69e4e6c3ba08a805b02db349406b1dc6520892dcefa1f25c60384",
    "news20": "a8ff40b97096379f213b9fa681df2b7372e1a5a4fa0b35cc3717e057f7b5cc66",
    "abalone": "aa250b17c582580ade1cb9c87fc4d06c92c13ca4fd4d0030d2b08d4188b4b56d",
    "cadata": "33afe9366ae3592e4a6deaa7639bb2d155082dbe285d1f01705f54bb17839d59",
    "cpusmall": "798f6c0fea98505dcc6647e90a130a3ae80032c0b304794de4133016d53592f1",
    "blogfeedback": "079743a68f66e10e822887372eb68ab4ffeb2f4b23a266fa00095aca540e6544",
}
"""Digests of the content (:func:`content_digest`) of the copies on which the figures of the documentation were measured, as
``dualnewton datasets NAME`` prints them."""


def _libsvm(name: str, kind: str, n: int, d: int, path: str) -> Entry:
    return Entry(name, kind, n, d, (Origin(LIBSVM + path, content=_CONTENTS.get(name)),))


_MUSHROOMS = (
    Origin(LIBSVM + "binary/mushrooms"),
    # The columns of LIBSVM's file may be in another order: only the content of this one is known.
    Origin(UCI + "ml/machine-learning-databases/mushroom/" + mushrooms.FILE, content=_CONTENTS["mushrooms"]),
)

_BLOGFEEDBACK = Origin(
    UCI + "static/public/304/blogfeedback.zip", member="blogData_train.csv", content=_CONTENTS["blogfeedback"]
)

_ENTRIES = (
    Entry("mushrooms", CLASSIFICATION, 8124, 112, _MUSHROOMS),
    _libsvm("a9a", CLASSIFICATION, 32561, 123, "binary/a9a"),
    _libsvm("w8a", CLASSIFICATION, 49749, 300, "binary/w8a"),
    _libsvm("phishing", CLASSIFICATION, 11055, 68, "binary/phishing"),
    _libsvm("splice", CLASSIFICATION, 1000, 60, "binary/splice"),
    _libsvm("madelon", CLASSIFICATION, 2000, 500, "binary/madelon"),
    _libsvm("colon_cancer", CLASSIFICATION, 62, 2000, "binary/colon-cancer.bz2"),
    _libsvm("ijcnn1", CLASSIFICATION, 49990, 22, "binary/ijcnn1.bz2"),
    _libsvm("covtype", CLASSIFICATION, 581012, 54, "binary/covtype.libsvm.binary.bz2"),
    _libsvm("gisette", CLASSIFICATION, 6000, 5000, "binary/gisette_scale.bz2"),
    _libsvm("rcv1", CLASSIFICATION, 20242, 47236, "binary/rcv1_train.binary.bz2"),
    _libsvm("real_sim", CLASSIFICATION, 72309, 20958, "binary/real-sim.bz2"),
    _libsvm("epsilon", CLASSIFICATION, 400000, 2000, "binary/epsilon_normalized.bz2"),
    _libsvm("news20", CLASSIFICATION, 15935, 62061, "multiclass/news20.bz2"),
    _libsvm("abalone", REGRESSION, 4177, 8, "regression/abalone_scale"),
    _libsvm("cadata", REGRESSION, 20640, 8, "regression/cadata"),
    _libsvm("cpusmall", REGRESSION, 8192, 12, "regression/cpusmall"),
    _libsvm("year_prediction", REGRESSION, 463715, 90, "regression/YearPredictionMSD.bz2"),
    Entry("blogfeedback", REGRESSION, 52397, 280, (_BLOGFEEDBACK,)),
)

FILES: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
"""Data sets that are read from files, which are local or downloaded."""

OFFLINE: dict[str, Entry] = {name: Entry(name, *known) for name, known in generated.KNOWN.items()}
"""Data sets that need no file: the synthetic set, and those that scikit-learn contains."""


def load(name: str, progress: Progress | None = None) -> Dataset:
    """Return a data set by its name.

    The folder named by the environment variable DUALNEWTON_DATA is searched first, then the cache; if the file is in neither,
    it is downloaded.

    Parameters
    ----------
    name : str
        A name of the catalog, the name of a file in the folder DUALNEWTON_DATA without its suffix, or a generator: dense:NxD,
        uncentred:NxD, sparse:NxDxK, motor:N.
    progress : callable, optional
        Called with the number of bytes received and the total number, if that is known.

    Examples
    --------
    >>> import dualnewton as dn
    >>> data = dn.data.load("diabetes")
    >>> data.X.shape
    (442, 10)
    """
    if name in FILES:
        return _from_file(FILES[name], *fetch(name, progress))
    if (mine := _own_file(name)) is not None:
        return replace(read(mine), name=name)
    made = generated.generated(name)
    if made is None:
        raise DataError(_unknown(name))
    return made


def find(source: str, progress: Progress | None = None, **options: Any) -> Dataset:
    """Return the data set of a file or, if there is no such file, of a name of the catalog.

    Parameters
    ----------
    source : str
        A path or a name.
    progress : callable, optional
        Called with the number of bytes read or received and the total number, if that is known.
    options
        The options of :func:`read`. The target of a named set is fixed; ``target=False`` omits it.

    Examples
    --------
    >>> import dualnewton as dn
    >>> dn.data.find("breast_cancer").X.shape
    (569, 30)
    """
    path = Path(source)
    if path.is_file():
        return read(source, progress=progress, **options)
    if is_known(source):
        return _adapted(load(source, progress), ReadOptions(**options))
    if path.is_dir():
        raise DataError(f"{source!r} is a folder, expected a file")
    if path.exists():
        raise DataError(
            f"{source!r} is a pipe or a device, expected a file, which is read more than once: save the data first"
        )
    if "://" in source:
        raise DataError(f"{source!r} is an address, expected a file: download it first")
    is_path = bool(path.suffix or set(source) & set("/\\"))
    raise DataError(f"there is no file {source!r}" + ("" if is_path else f", and {_unknown(source)}"))


def is_known(name: str) -> bool:
    """Return True if ``load`` accepts the name; the file of the set may still have to be downloaded."""
    return name in FILES or _own_file(name) is not None or generated.is_known(name)


def _adapted(data: Dataset, wanted: ReadOptions) -> Dataset:
    """Apply the options of ``read`` that a named set allows: omit the labels, or read weights and offsets from files."""
    path, target = Path(data.name), wanted.target
    for word in ("encoding", "decimal"):
        if (value := getattr(wanted, word)) is not None:
            raise DataError(f"{data.name} is a named data set, for which {word} must be left out, got {value!r}")
    refuse_zero_based(path, wanted)
    check_width(path, data.X.shape[1], wanted)
    if target is not None and target is not False:
        raise DataError(f"{data.name} is a named data set, whose target cannot be chosen, got {target!r}")
    given: Any = {"y": None, "target": None} if target is False else {}
    for name, file in separate_files(path, wanted, "part of it").items():
        given[name] = vector_file(file)
        require_one_each(file, name, given[name], data.X.shape[0])
    return replace(data, **given)


def fetch(name: str, progress: Progress | None = None) -> tuple[Path, Origin | None]:
    """Return the file of a named set and its origin (None for the user's own file); download it if it is not local."""
    entry = FILES[name]
    here = located(entry)
    if here is not None:
        return here
    faults = []
    for origin in entry.origins:
        path = cache_folder() / origin.file
        try:
            recorded = origin.sha256 or known_checksum(path)
            record_checksum(path, download(origin.url, path, recorded, progress))
        except DownloadError as error:
            faults.append(str(error))
        else:
            return path, origin
    raise DataError(
        f"{name} is not here and could not be downloaded: put {' or '.join(entry.files)} into {cache_folder()} (or the folder "
        f"named by {CACHE}), or {name}.npz into the folder named by {DATA} [{'; '.join(faults)}]"
    )


def located(entry: Entry) -> tuple[Path, Origin | None] | None:
    """Return the local file of a set, from the user's own folder or else from the cache; None if there is none."""
    if (mine := own_file(entry.name, entry.files)) is not None:
        return mine, next((origin for origin in entry.origins if origin.file == mine.name), None)
    for origin in entry.origins:
        if (path := cache_folder() / origin.file).is_file():
            return path, origin
    return None


def known_checksum(path: Path) -> str | None:
    """Return the SHA-256 that the first download of a file had, if there was one; later downloads must have the same."""
    with contextlib.suppress(OSError):
        return recorded_beside(path).read_text(encoding="ascii").strip() or None
    return None


def record_checksum(path: Path, found: str) -> None:
    """Write the SHA-256 of a downloaded file to a small file beside it, which outlives the file itself."""
    with replacing(recorded_beside(path), "w", encoding="ascii") as file:
        file.write(f"{found}\n")


def recorded_beside(path: Path) -> Path:
    """Return the file that records the SHA-256 of another."""
    return path.with_name(f"{path.name}.sha256")


def refuse_changed(path: Path, origin: Origin) -> None:
    """Raise an error if a downloaded file does not have the SHA-256 that it had when it was downloaded."""
    wanted = origin.sha256 or known_checksum(path)
    if wanted is not None and path.parent == cache_folder() and (found := checksum(path)) != wanted:
        raise DataError(f"{path}: the SHA-256 is {found}, expected {wanted}: delete the file to download it again")


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _from_file(entry: Entry, path: Path, origin: Origin | None) -> Dataset:
    """Read the file of a set. A downloaded file must have the size in the catalog; the user's own file may have another."""
    if origin is not None:
        refuse_changed(path, origin)
    found = replace(_read(entry, path, origin), name=entry.name)
    if path.parent != cache_folder() or origin is None:
        return found
    if found.X.shape != (entry.n, entry.d):
        seen, wanted = ("{} examples of {} features".format(*shape) for shape in (found.X.shape, (entry.n, entry.d)))
        raise DataError(f"{path}: has {seen}, and {entry.name} has {wanted}: delete the file to download it again")
    # No error: the digests come from copies of the public files, and a publisher may correct a value or reorder columns.
    if origin.content is not None and (digest := entry.content(found)) != origin.content:
        warn(
            f"{path}: the content differs from that on which the figures in the documentation were measured (SHA-256 {digest}, "
            f"in the catalog {origin.content}): delete the file to download it again, unless its publisher has changed it",
            DataWarning,
        )
    return found


def _read(entry: Entry, path: Path, origin: Origin | None) -> Dataset:
    """Read a file of the catalog: the UCI mushrooms, a table inside a zip archive, or any format of ``read``."""
    if path.name == mushrooms.FILE:
        return mushrooms.read(path)
    if origin is not None and origin.member is not None:
        return gather(table(path, ReadOptions(), origin.member), Pieces).dataset()
    width = entry.d if format_of(path) == "svmlight" else None
    return read(path, n_features=width)


def _own_file(name: str) -> Path | None:
    """Return the user's own file of that name, or None; a name with path separators has none."""
    return own_file(name) if name and not set(name) & set("/\\:\0") else None


def _unknown(name: str) -> str:
    names = [*FILES, *OFFLINE]
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    known = ", ".join([*names, "dense:NxD", "uncentred:NxD", "sparse:NxDxK"])
    return f"no data set is named {name!r}: {hint}known are {known} and motor:N"
