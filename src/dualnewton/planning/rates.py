"""Speeds of a processor core and of a GPU, by which counted work becomes predicted seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rates:
    """Speeds of an ordinary processor core. Plans depend on the ratios of these numbers, not on their absolute values."""

    link_bandwidth: float = 5e10  # bytes per second of rows that are copied from the host's memory to a GPU
    # Bytes per second of rows that are read from files in the system's cache (``benchmarks/DISK.md``).
    file_bandwidth: float = 7e8
    cache_bytes: float = float(1 << 24)  # bytes of data that stay in the cache from one pass to the next
    # Bytes per second that a matrix-vector product reads from memory and from the cache.
    memory_bandwidth: float = 1.4e10
    cache_bandwidth: float = 4e10
    widened_entry: float = 2.6e-10  # seconds per entry of dense float32 rows in a pass, which converts them to float64
    # Multiplications per second, each with an addition: of large matrix products, and of a Cholesky factorisation.
    multiply: float = 2.3e10
    factorise: float = 1.2e10
    sparse_entry: float = 1.6e-9  # seconds per stored entry of a sparse matrix in a pass over the data
    sparse_pair: float = 0.6e-9  # seconds per pair of stored entries of a row in a Gram matrix of sparse rows
    gathered_pair: float = 5e-9  # same for features in a working set, whose products SciPy computes
    expanded_entry: float = 1e-9  # seconds per entry when sparse rows are expanded to dense ones
    margin: float = 9e-9  # seconds per example for its loss and its derivative
    call: float = 1.5e-4  # seconds of Python overhead per pass or sketch, independent of the size of the data
    run: float = 3e-3  # seconds of the interpreter per run of the loop: plan, first certificate, starts of kernels
    # Seconds of the interpreter per conjugate gradient in a direct solver: two products with sparse rows, ten vector operations.
    product_call: float = 4e-5
    drawn_row: float = 2e-8  # seconds per example to compute its sampling probability and to draw a sketch
    # Seconds of a dual round per example, and per stored entry of a sparse one.
    visited_row: float = 3e-8
    visited_entry: float = 1.8e-9
    # Bytes per second of dense rows that a dual method reads in random order from memory, and from the cache.
    random_bandwidth: float = 6.5e9
    random_cache_bandwidth: float = 1.3e10
    # Seconds per coefficient and stored vector in a product with the limited-memory (L-BFGS) correction.
    corrected_entry: float = 4e-10
    numpy_round: float = 1e-4  # seconds of Python overhead and small LAPACK calls in a dual round by NumPy
    # Seconds to load compiled kernels from their cache. Compiling them, once, takes ten times as long.
    kernel_loading: float = 0.25
    # Powers of the number of threads by which passes over the data, limited by memory bandwidth, and matrix products become
    # faster: 9 and 12 times at 16 threads.
    pass_scaling: float = 0.78
    product_scaling: float = 0.9
    # The same for dual rounds, since most of a round depends on the one before it; and the power of the number of models that
    # threads take, whose rounds are independent. With this value "auto" fits ten models of 125000×100000 by rounds in 16 threads.
    round_scaling: float = 0.08
    model_scaling: float = 0.8
    single_speed: float = 2.0  # factor by which matrix products in float32 are faster than in float64

    def on(self, threads: float, models: int = 1) -> Rates:
        """Return the rates for a number of threads, which share the dual rounds of ``models`` models; calls use one thread."""
        passes, products, rounds = (
            threads**power for power in (self.pass_scaling, self.product_scaling, self.round_scaling)
        )
        rounds = max(rounds, min(threads, models) ** self.model_scaling)
        return replace(
            self,
            memory_bandwidth=self.memory_bandwidth * passes,
            cache_bandwidth=self.cache_bandwidth * passes,
            widened_entry=self.widened_entry / passes,
            multiply=self.multiply * products,
            sparse_entry=self.sparse_entry / passes,
            sparse_pair=self.sparse_pair / passes,
            expanded_entry=self.expanded_entry / passes,
            margin=self.margin / passes,
            visited_row=self.visited_row / rounds,
            visited_entry=self.visited_entry / rounds,
            random_bandwidth=self.random_bandwidth * rounds,
            random_cache_bandwidth=self.random_cache_bandwidth * rounds,
        )

    def streamed(self, itemsize: int) -> Rates:
        """Return the rates of a GPU to which each pass and Gram matrix copies the rows, with ``itemsize`` bytes per entry."""
        link = self.link_bandwidth
        return replace(
            self,
            memory_bandwidth=link,
            cache_bandwidth=link,
            sparse_entry=self.sparse_entry + (itemsize + 4) / link,  # including its column index
            expanded_entry=self.expanded_entry + itemsize / link,
        )


GPU = Rates(
    cache_bytes=0.0,
    memory_bandwidth=2.8e12,
    cache_bandwidth=2.8e12,
    widened_entry=0.0,
    multiply=1.3e13,
    factorise=4e11,
    sparse_entry=1.6e-11,
    sparse_pair=1e-11,
    expanded_entry=1.7e-12,
    margin=1e-11,
    call=1.3e-3,
    drawn_row=2e-11,
    single_speed=1.0,
)
"""Rates of a GPU with 4.8 TB/s (H200). They are fits to the times that ``python -m benchmarks.gpu_probe`` prints.

``memory_bandwidth`` and ``margin`` are those of a pass in float64 over float32 rows (1.2 ms for 4 GB), ``multiply`` and
``expanded_entry`` of weighted Gram matrices in float64 (5.5 ms for 10,000,000×100, 36 ms for 1,000,000×1000), and
``sparse_entry`` of passes over CSR rows. ``sparse_pair`` is an estimate, since the fits of the probe multiply no sparse rows on
the GPU: their Gram matrices are of sampled rows, in memory. ``call`` is the interpreter's time of a pass, a matrix or a sample of
rows, with the work around it, and about twice what ``python -m benchmarks.gpu_timeline`` shows for one: with 0.65 ms, the first
sketch of 1,000,000×2000 has fewer rows than features, and a fit takes 87 ms and 14 passes instead of 50 ms and 8. What is not set
here is not done on a GPU, and is as on a core.
"""
