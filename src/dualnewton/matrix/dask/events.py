"""Small results that tasks send to the client themselves, as events of Dask.

For a result that the client gathers, it asks the scheduler, the scheduler asks the worker, and both answer; where arrays with an
entry per row stay on the worker, a second task returns the sums without them. An event travels in the message by which the worker
reports the end of its task, and the scheduler passes it on at once: the event loops of the workers take less time for a pass.
Results also stay on their workers, from where the client gathers those that are too large for an event.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

LARGEST = 1 << 15
"""Bytes of the largest result that is sent as an event (32 KiB): the scheduler keeps the last thousand events of a client."""

PROTOCOL = 4
"""The protocol of pickle: the latest with which unpickled arrays own aligned memory."""


class Expected:
    """The results of some tasks, as they arrive. Keys are pairs of a string and a number."""

    def __init__(self, keys: Sequence[Any]) -> None:
        self._keys, self._found, self._complete = list(keys), dict[Any, Any](), threading.Event()

    def put(self, key: Any, sent: bytes | None) -> None:
        """Store the event of a task; None means that its result must be gathered, or that the task failed."""
        self._found[key] = sent
        if len(self._found) == len(self._keys):
            self._complete.set()

    def wait(self, seconds: float) -> None:
        """Wait until all tasks have sent an event; raise ``TimeoutError`` after this many seconds."""
        if not self._complete.wait(seconds):
            raise TimeoutError

    def results(self) -> list[Any] | None:
        """Return the results in the order of the keys; None if some must be gathered."""
        sent = [self._found.get(key) for key in self._keys]
        return None if None in sent else [pickle.loads(each) for each in sent if each is not None]


class Inbox:
    """The events that tasks of this process's fits send to one client."""

    _of: ClassVar[WeakKeyDictionary[Any, Inbox]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.topic = f"dualnewton-{uuid.uuid4().hex}"
        self._expected: dict[Any, Expected] = {}

    @classmethod
    def of(cls, client: Any) -> Inbox:
        """Return the inbox of a client; subscribe to its events again, since the scheduler may have been restarted."""
        made = cls._of.setdefault(client, cls())
        client.subscribe_topic(made.topic, made._received)
        return made

    def expect(self, keys: Sequence[Any]) -> Expected:
        """Return the object that receives the results of these tasks; call it before the tasks are started."""
        made = Expected(keys)
        self._expected.update(dict.fromkeys(keys, made))
        return made

    def forget(self, keys: Sequence[Any]) -> None:
        """Ignore further events of these tasks: a task whose worker was lost runs again, and sends a second event."""
        for key in keys:
            self._expected.pop(key, None)

    def _received(self, event: tuple[float, Any]) -> None:
        _, (name, place, sent) = event
        expected = self._expected.pop((name, place), None)
        if expected is not None:
            expected.put((name, place), sent)


def send(topic: str, result: Any, size: int) -> None:
    """Send the result of the task that runs on this worker; if it is larger than ``LARGEST``, the client must gather it.

    The topic is that of the client's inbox. The result is None if the task failed; ``size`` is a lower bound on the bytes of
    its arrays.
    """
    from distributed import get_worker

    worker: Any = get_worker()
    name, place = worker.get_current_task()
    sent = None if result is None or size > LARGEST else pickle.dumps(result, PROTOCOL)
    worker.log_event(topic, (name, place, None if sent is None or len(sent) > LARGEST else sent))
