"""A display of qb.progress that writes down what it is told."""


class Log:
    """Runs: (loop, label, trips) of every start; seen: the trips that were done at each report."""

    def __init__(self):
        self.runs, self.seen = [], []

    def started(self, loop, label, trips):
        self.runs.append((loop, label, trips))

    def advanced(self, loop, done):
        self.seen.append(done)
