"""Threads that wait for their work in compiled code, where they need no interpreter's lock to begin it.

A *team* is an array of words that its members share. The member that leads publishes a job: the addresses of a function and of
its arguments. Helpers enter the job through the *gate*, do it and leave. The leader does it as well, closes the gate and waits
for the helpers inside; nobody waits for one that finds the gate closed. The threads take the parts of a job from a counter
(``atomic.next_number``), so that any number of them does all of it.

    serve(words, me)                    do compiled jobs as helper ``me``; return True for a job in Python, False at the end
    leave(words)                        leave a job in Python, which ``serve`` has entered
    publish(words, job, given, wanted)  publish a job, for at most ``wanted`` helpers
    finish(words)                       close the gate, and wait until no helper is inside
    dismiss(words)                      end the team

A :class:`TeamKernel` is a kernel that is published as a job when it is called. A thread that waits yields the processor for a
while, since another job often follows soon, and then sleeps.
"""

from __future__ import annotations

import ctypes
import inspect
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dualnewton.kernels._compiler import Part, address_of, call_address
from dualnewton.kernels._jit import calling, lean, least
from dualnewton.kernels.atomic import load, store, swap_if, yield_thread
from dualnewton.kernels.models import Kernel

GATE, JOB, GIVEN, WANTED, YIELDS, MEMBERS, PUBLISH, FINISH, LOCKS = 0, 16, 17, 18, 19, 20, 21, 22, 32
"""Positions in the words: the gate, 128 bytes from the others; the job, its arguments and the largest number of its helpers; how
often a thread yields before it sleeps; the number of members; the addresses of ``publish`` and ``finish``, which are thus
compiled once and not into each kernel. From LOCKS on there are, for each member, the address of its lock, then the flags that
say who sleeps, then the numbers of the last jobs that members have seen. Member 0 leads."""

OPEN, ONE_INSIDE, NUMBER = 1, 2, 32
"""Bits of the gate: whether it is open, where the number of helpers inside begins, and where the number of the job begins. The
gate is negative once the team has ended."""

MOST_YIELDS = 200
"""How often a waiting thread yields before it sleeps: about 0.1 ms. To wake it takes 0.03 ms more than to wait for it."""

LEADER, PYTHON = 0, 0
"""The member that leads, and the address of a job in Python."""

WAIT = 1
"""Argument of ``PyThread_acquire_lock``: wait until the lock is released."""

NOBODY = np.zeros(LOCKS, dtype=np.int64)
"""The words of a team without helpers."""


# Locks --------------------------------------------------------------------------------------------------------------------

# Python's own locks: all systems have them, and compiled code may wait for them without the interpreter's lock.
_allocate, _free = ctypes.pythonapi.PyThread_allocate_lock, ctypes.pythonapi.PyThread_free_lock
_acquire = ctypes.pythonapi.PyThread_acquire_lock
_allocate.restype, _free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
_acquire.argtypes = [ctypes.c_void_p, ctypes.c_int]


_acquire_lock = types.ExternalFunction("PyThread_acquire_lock", types.int32(types.intp, types.int32))
_release_lock = types.ExternalFunction("PyThread_release_lock", types.void(types.intp))
"""The same for compiled code, which is given the address of a lock."""


def new_team(helpers: int) -> np.ndarray:
    """Return the words of a new team."""
    words = np.zeros(LOCKS + 3 * (1 + helpers), dtype=np.int64)
    words[YIELDS], words[MEMBERS] = MOST_YIELDS, 1 + helpers
    words[PUBLISH], words[FINISH] = map(_address, (publish, finish))
    for member in range(1 + helpers):
        lock = _allocate()
        _acquire(lock, WAIT)
        words[LOCKS + member] = lock
    return words


def prepare() -> None:
    """Compile the kernels of a team, or load them."""
    serve.prepare(NOBODY, 0)
    publish.prepare(NOBODY, 0, 0, 0)
    for kernel in (leave, finish, dismiss):
        kernel.prepare(NOBODY)


def _address(kernel: Kernel) -> int:
    """Return the address of a kernel that is prepared for one combination of types."""
    (made,) = kernel.called.overloads.values()
    return address_of(made)


def release(words: np.ndarray) -> None:
    """Free the locks of a team whose threads have ended."""
    for lock in words[LOCKS : LOCKS + words[MEMBERS]].tolist():
        _free(lock)


# Waiting and waking -------------------------------------------------------------------------------------------------------


@lean
def _wake(words, member):
    """Wake a member if it sleeps: the thread that resets its flag releases its lock."""
    flag = LOCKS + words[MEMBERS] + member
    if load(words, flag) != 0 and swap_if(words, flag, 1, 0):
        _release_lock(words[LOCKS + member])


@lean
def _wake_helpers(words, wanted):
    for member in range(1, least(words[MEMBERS], 1 + wanted)):
        _wake(words, member)


@lean
def _must_act(gate, seen):
    """Whether a helper must do something: there is a job that it has not seen, or the team has ended."""
    return gate < 0 or (gate & OPEN != 0 and gate >> NUMBER != seen)


@lean
def _is_empty(gate):
    """Whether no helper is inside."""
    return gate & ((1 << NUMBER) - 1) < ONE_INSIDE


@lean
def _sleep(words, me, seen):
    """Sleep until woken. The flag is set before the gate is read again: no change of the gate can be missed."""
    flag = LOCKS + words[MEMBERS] + me
    store(words, flag, 1)
    gate = load(words, GATE)
    awake = _is_empty(gate) if me == LEADER else _must_act(gate, seen)
    if not awake or not swap_if(words, flag, 1, 0):
        _acquire_lock(words[LOCKS + me], WAIT)


# Jobs ---------------------------------------------------------------------------------------------------------------------


@lean
def _publish(words, job, given, wanted):
    words[JOB], words[GIVEN], words[WANTED] = job, given, wanted
    store(words, GATE, (((load(words, GATE) >> NUMBER) + 1) << NUMBER) + OPEN)
    _wake_helpers(words, wanted)


@lean
def _finish(words):
    gate = load(words, GATE)
    while not swap_if(words, GATE, gate, gate & ~OPEN):
        gate = load(words, GATE)
    yields = 0
    while not _is_empty(load(words, GATE)):
        if yields < words[YIELDS]:
            yields += 1
            yield_thread()
        else:
            _sleep(words, LEADER, 0)


@lean
def _leave(words):
    gate = load(words, GATE)
    while not swap_if(words, GATE, gate, gate - ONE_INSIDE):
        gate = load(words, GATE)
    if gate & OPEN == 0 and _is_empty(gate - ONE_INSIDE):
        _wake(words, LEADER)


@lean
def _serve(words, me):
    last, yields = LOCKS + 2 * words[MEMBERS] + me, 0
    while True:
        gate = load(words, GATE)
        if gate < 0:
            return False
        if _must_act(gate, words[last]):
            inside = (gate & ((1 << NUMBER) - 1)) // ONE_INSIDE
            if inside >= words[WANTED]:
                words[last] = gate >> NUMBER
            elif swap_if(words, GATE, gate, gate + ONE_INSIDE):
                words[last] = gate >> NUMBER
                _wake_helpers(words, words[WANTED])  # with the leader, which wakes one after the other
                if words[JOB] == PYTHON:
                    return True
                _do_job(words[JOB], words[GIVEN])
                _leave(words)
            yields = 0
        elif yields < words[YIELDS]:
            yields += 1
            yield_thread()
        else:
            _sleep(words, me, words[last])


@lean
def _dismiss(words):
    store(words, GATE, -1)
    _wake_helpers(words, words[MEMBERS])


serve, leave, publish = Kernel(_serve), Kernel(_leave), Kernel(_publish)
finish, dismiss = Kernel(_finish), Kernel(_dismiss)


# Kernels as jobs ----------------------------------------------------------------------------------------------------------

_JOB = types.void(types.voidptr)
"""The signature of a job: it takes the address of its arguments."""


_do_job = calling(_JOB)


@intrinsic
def _lead(typingctx: Any, part: Any, given: Any, words: Any, wanted: Any) -> Any:
    """Call a part of a kernel with the arguments in a tuple, and let up to ``wanted`` helpers call it at the same time."""
    called = part.get_call_type(typingctx, tuple(given.types), {})
    publishes, finishes = types.void(words, *[types.int64] * 3), types.void(words)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(words)(context, builder, args[2]).data

        def call(place: int, signature: Any, *args: Any) -> None:
            """Call the function whose address is in the words."""
            address = builder.load(builder.gep(data, [context.get_constant(types.intp, place)]))
            call_address(context, builder, address, signature, args)

        # 1. A function that reads the arguments from the leader's stack.
        conventions, byte, number = context.call_conv, ir.IntType(8).as_pointer(), ir.IntType(64)
        place = cgutils.alloca_once_value(builder, args[1])
        kind = conventions.get_function_type(_JOB.return_type, _JOB.args)
        job = ir.Function(builder.module, kind, builder.module.get_unique_name("job"))
        job.linkage = "internal"
        job.attributes.add("noinline")  # it is called at two places
        inside = ir.IRBuilder(job.append_basic_block("entry"))
        (address,) = conventions.get_arguments(job)
        arguments = inside.load(inside.bitcast(address, place.type))
        function = context.get_function(part, called)
        context.add_linking_libs(getattr(function, "libs", ()))
        function(inside, cgutils.unpack_tuple(inside, arguments, len(given.types)))
        conventions.return_value(inside, context.get_dummy_value())
        # 2. All threads call it. An exception of the leader waits until no helper reads its stack.
        helped = builder.icmp_signed(">", args[3], number(0))
        with builder.if_then(helped):
            where = builder.ptrtoint(job, number), builder.ptrtoint(place, number)
            call(PUBLISH, publishes, args[2], *where, args[3])
        status, _ = conventions.call_function(builder, job, _JOB.return_type, _JOB.args, [builder.bitcast(place, byte)])
        with builder.if_then(helped):
            call(FINISH, finishes, args[2])
        with cgutils.if_unlikely(builder, status.is_error):
            conventions.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(part, given, words, types.int64), codegen


class TeamKernel(Kernel):
    """A kernel, made from a lean part, that the members of a team run at the same time with the same arguments.

    The words of the team and the largest number of helpers follow its arguments; without them the calling thread is alone.
    """

    def __init__(self, part: Part) -> None:
        super().__init__(_led(part))

    def prepare(self, *args: Any) -> None:
        super().prepare(*args, NOBODY, 0)

    def __call__(self, *args: Any, words: np.ndarray = NOBODY, wanted: int = 0) -> Any:
        return super().__call__(*args, words, wanted)


def _led(part: Part) -> Part:
    """Return the function that publishes a part as a job: it has its arguments, so that it needs a source of its own."""
    original = part.py_func
    name, names = f"team{original.__name__}", ", ".join(inspect.signature(original).parameters)
    source = f"def {name}({names}, words, wanted):\n    _lead(part, ({names},), words, wanted)\n"
    space = {"_lead": _lead, "part": part, "__name__": original.__module__}
    # The cache on disk is current as long as this file is unchanged.
    exec(compile(source, original.__code__.co_filename, "exec"), space)
    return lean(space[name])
