"""How kernels are compiled and kept on disk: faster than Numba's defaults, with the same language and the same machine code.

A kernel is compiled once per combination of argument types, together with all functions that it calls (its *parts*):

- Numba by default optimises every function together with everything it calls, produces machine code and a Python wrapper for it,
  and does so again for each of its callers. A :class:`Part` is translated to LLVM's language only; the kernel that contains it is
  optimised once. Compilation takes half of the time.
- Numba counts references to arrays in every function. Where nothing is allocated this is left out (``LEAN``), with some steps
  of the compiler.
- Numba loads all declarations of its language, which takes as long as ``import numba``, before it looks into its cache. A kernel
  found in the cache needs none of them (:class:`KernelCache`).
- Numba regards a cached function as current as long as the file that defines it is unchanged. Kernels inline functions of other
  files, losses among them, so that all these files are compared.
"""

from __future__ import annotations

import gc
import hashlib
import operator
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import ir
from llvmlite.binding import Linkage
from numba.core import cgutils, typed_passes, types, untyped_passes
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, PassManager, _pass_registry, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

from dualnewton.kernels._lowering import LeanLower, is_place, leave_as_is, marks_functions

PACKAGE = Path(__file__).parents[1]
SOURCES = ("kernels", "losses")
"""The packages whose functions are compiled into kernels."""

UNUSED = (
    untyped_passes.WithLifting,
    untyped_passes.InlineClosureLikes,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.InlineInlinables,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass,
    untyped_passes.ReconstructSSA,
    typed_passes.PreLowerStripPhis,
    typed_passes.InlineOverloads,
    typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.AnnotateTypes,
    typed_passes.IRLegalization,
)
"""Steps of Numba's compiler for what lean functions do not use: closures, literal arguments, variables of several types, and the
ends of variables, where references are counted."""

WRAPPER = "_ZN7cpython"
"""Beginning of the name of the function by which Python calls a kernel. It converts up to twenty arrays, and is not optimised:
that would take a tenth of the time of a compilation, and 0.6 µs less of the 15 to 20 µs of a call."""

DIGEST = 16
"""Bytes of the digest at the beginning of a kernel's file."""


# Parts of kernels --------------------------------------------------------------------------------------------------------


class _NoEnvironment:
    """Replaces the code generator of a part, which has no machine code and hence no address of its globals."""

    @staticmethod
    def set_env(name: str, env: Any) -> None:
        """Do nothing: the kernel that contains the part sets the address in its own code (:func:`machine_code`)."""


class _PartLibrary(JITCodeLibrary):
    """LLVM code that other code includes: neither optimised nor compiled to machine code by itself."""

    codegen = _NoEnvironment

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        """Leave the functions that this one calls to the kernel: copies of them would be linked at each level of calls."""
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def own_code(self) -> Any:
        """The module with the code of this function alone."""
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = Linkage.linkonce_odr
        return self._final_module

    def _get_module_for_linking(self) -> Any:
        """Return the code of this function and all that it calls, for a function that is not one of our kernels."""
        code = self.own_code.clone()
        for library in _called(self):
            code.link_in(_linked_code(library), preserve=True)
        return code

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002
        return 0


class _KernelLibrary(JITCodeLibrary):
    """The machine code of a kernel and of all its parts."""

    options: dict[str, Any] = {}  # noqa: RUF012
    """Options of LLVM's optimisation, where they differ from Numba's."""

    def finalize(self) -> None:
        """Link each function once that this one calls, directly or through parts."""
        for library in _called(self):
            self._final_module.link_in(_linked_code(library), preserve=True)
        self._linking_libraries = []
        super().finalize()

    # Numba optimises functions and then the module before it removes reference counts: both are in vain where there are none.

    def _optimize_functions(self, ll_module: Any) -> None:
        if _counts_references(ll_module):
            super()._optimize_functions(ll_module)
        else:
            ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        if _counts_references(self._final_module):
            super()._optimize_final_module()
        else:
            made = self._codegen._module_pass_manager(**self.options)
            passes, *builder = made if isinstance(made, tuple) else (made,)  # LLVM's old pass manager has no builder
            for function in self._final_module.functions if marks_functions() else ():
                if function.name.startswith(WRAPPER) and not function.is_declaration:
                    leave_as_is(function)
            passes.run(self._final_module, *builder)


def _called(library: JITCodeLibrary) -> list[Any]:
    """Return the libraries of all functions that one calls, directly or through parts."""
    found = dict.fromkeys(library._linking_libraries)
    waiting = list(found)
    while waiting:
        if isinstance(part := waiting.pop(), _PartLibrary):
            new = [each for each in part._linking_libraries if each not in found]
            found.update(dict.fromkeys(new))
            waiting += new
    return list(found)


def _linked_code(library: Any) -> Any:
    return library.own_code if isinstance(library, _PartLibrary) else library._get_module_for_linking()


def _counts_references(module: Any) -> bool:
    try:
        module.get_function("NRT_incref")
    except NameError:
        return False
    return True


@register_pass(mutates_CFG=False, analysis_only=True)
class _UseLibrary(AnalysisPass):
    _name = "use_library"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = state.pipeline.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return False


@register_pass(mutates_CFG=True, analysis_only=False)
class _LeanLowering(typed_passes.BaseNativeLowering):
    _name = "lean_lowering"  # type: ignore[assignment]

    @property
    def lowering_class(self) -> type[LeanLower]:
        return LeanLower


class _LeanPasses(PassManager):
    """Runs the steps of a lean function without Numba's timers, events and descriptions of every step."""

    def run(self, state: Any) -> None:
        for step, _ in self.passes:
            _pass_registry.get(step).pass_inst.run_pass(state)


class _LeanTyping:
    """Numba's rules of types, which remember the signature of each function and know that of an entry of an array.

    Numba asks some thirty declarations for the type of a sum, and fifteen of other containers for that of an entry.
    """

    signatures: dict[Any, Any] = {}  # noqa: RUF012

    def __init__(self, rules: Any) -> None:
        self.rules = rules

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rules, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call."""
        if isinstance(function, types.Type) and not isinstance(function, types.Function):
            return self.rules.resolve_function_type(function, args, kws)  # of parts, for example
        if (key := (function, args, tuple(kws.items()))) not in self.signatures:
            is_entry = function is operator.getitem and is_place(*args)
            found = args[0].dtype(*args) if is_entry else self.rules.resolve_function_type(function, args, kws)
            self.signatures[key] = found
        return self.signatures[key]


class KernelCompiler(CompilerBase):
    """Numba's compiler with another kind of library, and without unused steps for lean functions."""

    library: type[JITCodeLibrary] = _KernelLibrary

    def define_pipelines(self) -> list[Any]:
        made = DefaultPassBuilder.define_nopython_pipeline(self.state)
        lean = self.state.flags.no_rewrites
        if lean:
            self.state.typingctx = _LeanTyping(self.state.typingctx)
        steps = [step for step in made.passes if not lean or step[0] not in UNUSED]
        place = next(i for i, (step, _) in enumerate(steps) if step is typed_passes.NativeLowering)
        lowering = (_LeanLowering, "lean lowering") if lean else steps[place]
        library = (_UseLibrary, "the library of a kernel or part")
        if lean:
            made = _LeanPasses("lean")
        made.passes = [*steps[:place], library, lowering, *steps[place + 1 :]]
        made.finalize()
        return [made]


class _ShortLoopsLibrary(_KernelLibrary):
    options = {"loop_vectorize": False}  # noqa: RUF012


class ShortLoopsCompiler(KernelCompiler):
    """The compiler of kernels whose loops are short, or vectorised by hand: LLVM's vector code for them is larger, and slower."""

    library = _ShortLoopsLibrary


class _PartCompiler(KernelCompiler):
    library = _PartLibrary


KERNEL: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Compiler options of all kernels and parts."""

LEAN: Any = {"_nrt": False, "no_rewrites": True}
"""Further options of functions that neither allocate nor return arrays: without reference counts and the steps in ``UNUSED``
their compilation takes two thirds of the time."""

PART: dict[str, Any] = {**KERNEL, "no_cpython_wrapper": True}
"""Compiler options of parts: nothing that is needed only to call them from Python."""


class Part(CPUDispatcher):
    """A function that compiled code calls; it cannot be called from Python, except as ``py_func``."""

    def __init__(self, py_func: Any, **options: Any) -> None:
        super().__init__(py_func, targetoptions={"nopython": True, **PART, **options}, pipeline_class=_PartCompiler)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        # Constants are numbers like any other: Numba would compile a part once more for each value of a constant argument.
        return super().get_call_template([types.unliteral(kind) for kind in args], kws)

    def add_overload(self, cres: Any) -> None:
        self.overloads[tuple(cres.signature.args)] = cres

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:  # noqa: ARG002
        raise TypeError(
            f"{self.py_func.__name__} is a part of kernels and cannot be called from Python: make a Kernel of it"
        )


class ChosenPart(Part):
    """A part with an implementation for each combination of argument types, a function or a part that ``choose`` returns.

    Numba's overloads are the same, but it takes as long to resolve their calls as to compile a small part.
    """

    def __init__(self, choose: Any, **options: Any) -> None:
        super().__init__(choose, **options)
        self.made: dict[Any, Part] = {}
        self.options = options

    def get_call_template(self, args: Any, kws: Any) -> Any:
        kinds = tuple(map(types.unliteral, args))
        if kinds not in self.made:
            chosen = self.py_func(*kinds)
            self.made[kinds] = chosen if isinstance(chosen, Part) else Part(chosen, **self.options)
        found = self.made[kinds].get_call_template(kinds, kws)
        self.overloads[kinds] = self.made[kinds].overloads[kinds]
        return found


# Kernels on disk ---------------------------------------------------------------------------------------------------------


@cache
def source_stamp() -> bytes:
    """Hash all files whose functions are compiled into kernels."""
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((PACKAGE / folder).glob("*.py")):
            found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.digest()


class KernelFiles(IndexDataCacheFile):
    """The files of a kernel in Numba's cache, each with its digest: a damaged file is treated as absent.

    Numba numbers the files of a kernel, one for each combination of types. Two processes that compile it for different types at
    the same time would use one number for both, and a third process could load the wrong one: the names are hashes of the types.
    """

    def save(self, key: Any, data: Any) -> None:
        name = self._data_name_pattern.format(number=int.from_bytes(_digest(self._dump(key))[:8], "big"))
        self._save_data(name, data)
        self._save_index(self._load_index() | {key: name})

    def _load_index(self) -> dict[Any, str]:
        try:
            return dict(super()._load_index())
        except Exception:  # a damaged pickle may raise any exception
            return {}

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(_digest(content) + content)

    def _load_data(self, name: str) -> Any:
        raw = Path(self._data_path(name)).read_bytes()
        digest, content = raw[:DIGEST], raw[DIGEST:]
        if digest != _digest(content):
            raise OSError(f"{name} is damaged")  # Numba treats it as a removed file
        return pickle.loads(content)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST).digest()


class KernelCache(FunctionCache):
    """Numba's cache on disk, with a stamp of all sources, and without the declarations that only compilation needs."""

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        stamp = self._impl.locator.get_source_stamp(), source_stamp()
        self._cache_file = KernelFiles(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            if (found := self._load_overload(sig, target_context)) is not None:
                SO_FAR.loaded += 1
                return found
        announce(sig, "once per installation; `dualnewton warm-up` does it ahead")
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:  # a full disk, for example: the kernel itself is ready
            report_unsaved(self.cache_path, error.strerror or str(error))


class NoCache(NullCache):
    """Replaces a cache on disk if no folder for it can be written."""

    def load_overload(self, sig: Any, target_context: Any) -> None:  # noqa: ARG002
        announce(sig, "in every process, since no folder for the cache can be written: set NUMBA_CACHE_DIR")


def cache_of(py_func: Any) -> KernelCache | NoCache:
    """Return the cache of a kernel on disk, or one that stores nothing if no folder for it can be written."""
    try:
        return KernelCache(py_func)
    except RuntimeError:  # raised by Numba if it found no folder
        return NoCache()


def cache_folder() -> str | None:
    """Return the folder in which kernels are stored, or None if none can be written."""
    return cache_of(announce).cache_path


@dataclass
class SoFar:
    """The number of kernels that this process has compiled and loaded, and whether the message was printed."""

    compiled: int = 0
    loaded: int = 0
    announced: bool = False


SO_FAR = SoFar()


def announce(kinds: tuple[Any, ...], when: str) -> None:
    """Print a message on standard error, once per process, that a kernel for these argument types is being compiled."""
    SO_FAR.compiled += 1
    if not SO_FAR.announced:
        SO_FAR.announced = True
        print(f"dualnewton: compiling kernels for {described(kinds)} ({when})", file=sys.stderr, flush=True)


@cache
def report_unsaved(folder: str, why: str) -> None:
    """Print a message on standard error, once per process, that kernels cannot be stored."""
    print(
        f"dualnewton: compiled kernels cannot be stored in {folder} ({why}), so that every process compiles them: "
        "set NUMBA_CACHE_DIR to another folder",
        file=sys.stderr,
        flush=True,
    )


def described(kinds: tuple[Any, ...]) -> str:
    """Name the storage and the type of the data that a kernel works on."""
    if isinstance(kinds[0], types.CPointer):  # functions of kernels.sets: dense data have no column indices
        return f"{'dense' if kinds[1] == types.voidptr else 'CSR'} {kinds[0].dtype} data"
    arrays = [kind for kind in kinds if isinstance(kind, types.Array)]
    if len(arrays) < 3:
        return "a loss"
    if isinstance(arrays[0].dtype, types.Integer):
        return "sums over rows"
    is_matrix = isinstance(arrays[1].dtype, types.Integer)  # the arrays of kernels.rows.Rows
    storage = "" if not is_matrix else "dense " if arrays[0].ndim == 2 else "CSR "
    return f"{storage}{arrays[0].dtype} data"


@contextmanager
def _uncollected() -> Iterator[None]:
    """Suspend the garbage collection, which takes a sixth of the time of a compilation: most objects live until it ends."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compiled_for(dispatcher: Any, kinds: tuple[Any, ...]) -> Any:
    """Compile a function for these types of arguments, or load it from the cache; return Numba's compile result."""
    if isinstance(dispatcher._cache, NullCache):
        dispatcher._cache = cache_of(dispatcher.py_func)
    with _uncollected():
        dispatcher.compile(kinds)
    made = dispatcher.overloads[kinds]
    if made.metadata is not None:  # it was just compiled; after loading, Numba sets the addresses of the parts' globals
        for env in made._find_referenced_environments():
            made.codegen.set_env(env.env_name, env)
    return made


# Calls through addresses -------------------------------------------------------------------------------------------------


def address_of(made: Any) -> int:
    """Return the address of a compiled function, valid as long as its dispatcher exists; compiled code can call it."""
    return int(made.library.get_pointer_to_function(made.fndesc.llvm_func_name))


def call_address(context: Any, builder: Any, address: ir.Value, signature: Any, args: Any) -> Any:
    """Call the function at an address from compiled code, propagate its exceptions and return its result."""
    conventions = context.call_conv
    kind = conventions.get_function_type(signature.return_type, signature.args)
    function = builder.inttoptr(address, kind.as_pointer())
    status, result = conventions.call_function(builder, function, signature.return_type, signature.args, args)
    with cgutils.if_unlikely(builder, status.is_error):
        conventions.return_status_propagate(builder, status)
    return result
