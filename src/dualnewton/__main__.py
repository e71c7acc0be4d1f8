"""``python -m dualnewton`` is the command line."""

from dualnewton.cli import main

if __name__ == "__main__":  # worker processes of --dask import this module under another name
    main()
