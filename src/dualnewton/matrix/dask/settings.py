"""Settings of Dask for clusters that are made for a fit, on this machine."""

LOCAL_CLUSTER = {
    # Workers take samples of their stacks 100 times a second for the dashboard, and look at the delay of their event loop 50
    # times: 6 % of a core with two workers that have nothing to do, 1.4 % with these settings.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    # Dask's own environment also has MALLOC_TRIM_THRESHOLD_, with which freed memory goes back to the system at once: arrays of
    # a block of rows are then mapped anew at each pass, which takes a quarter of the processor time of a certificate.
    # Workers estimate the size of each message, to serialise those above 10 MB in a thread: a seventh of the time of their event
    # loop for a pass. Dask reads this setting when it is imported, hence from the environment.
    "distributed.nanny.pre-spawn-environ": {
        "OMP_NUM_THREADS": 1,
        "MKL_NUM_THREADS": 1,
        "OPENBLAS_NUM_THREADS": 1,
        "DASK_DISTRIBUTED__COMM__OFFLOAD": False,
    },
}
"""What differs from Dask's defaults; ``dask.config.set`` takes it."""
