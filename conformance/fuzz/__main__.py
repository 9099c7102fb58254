import gc
import sys

from .cli import main

gc.freeze()  # what is imported stays; and a trace is many small objects that live as long as it does
gc.set_threshold(100_000, 20, 100)
sys.exit(main())
