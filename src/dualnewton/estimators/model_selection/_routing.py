"""Routing of the metadata of ``fit`` and ``score`` to splitter and scorer, by scikit-learn's rules and defaults."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn.metrics import make_scorer
from sklearn.utils import Bunch
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _routing_enabled,
    process_routing,
)


def routed(owner: Any, method: str, params: dict[str, Any], unrouted: dict[str, Any]) -> Bunch:
    """Return the metadata for splitter and scorer as requested; without routing, the scorer receives ``unrouted``."""
    if _routing_enabled():
        return process_routing(owner, method, **params)
    return Bunch(splitter=Bunch(split={}), scorer=Bunch(score=unrouted))


def router(owner: Any, splitter: Any, scorer: Any, *callers: str) -> MetadataRouter:
    """Return the router of an estimator with a splitter and, if not None, a scorer, called by the given methods."""
    found = MetadataRouter(owner=owner).add_self_request(owner)
    found.add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    if scorer is not None:
        mapping = MethodMapping()
        for caller in callers:
            mapping.add(caller=caller, callee="score")
        found.add(scorer=scorer, method_mapping=mapping)
    return found


def takes_weights(scorer: Any) -> bool:
    """Whether a scorer accepts weights of the rows."""
    accepts = getattr(scorer, "_accept_sample_weight", None)
    if accepts is not None:
        return bool(accepts())
    return "sample_weight" in inspect.signature(getattr(scorer, "_score_func", scorer)).parameters


def knowing_the_classes(scorer: Any, classes: np.ndarray) -> Any:
    """Return a scorer with all classes, if its function has ``labels``: the rows of a fold may lack some classes."""
    function = getattr(scorer, "_score_func", None)
    names = inspect.signature(function).parameters if function is not None else {}
    if "labels" not in names:
        return scorer
    more = dict(getattr(scorer, "_kwargs", {}))
    if len(classes) == 2 and "pos_label" in names:
        more.setdefault("pos_label", classes[1])
    more.setdefault("labels", classes)
    return make_scorer(function, response_method=scorer._response_method, greater_is_better=scorer._sign == 1, **more)
