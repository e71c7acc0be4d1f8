from hypothesis import settings

# The same examples on every run and every machine; time limits belong to benchmarks.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("fixed")
