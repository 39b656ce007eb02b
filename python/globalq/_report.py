# SPDX-License-Identifier: Apache-2.0
"""What this package has sent in this process, and how; python -m globalq report adds up processes."""

import argparse
import json
import sys
import threading
from collections import namedtuple

Traffic = namedtuple("Traffic", "call how why calls values bytes sent seconds error")
Traffic.__doc__ = """What one kind of call has done on this process.

call     name of the collective, such as "all_reduce"; "DDPHook", "outer step" (DiLoCo), "shard: all_gather", "shard: reduce_scatter"
how      the operator, of a hook that of most layers; the name of the back end that the call was passed to, such as "gloo"; or "exact"
why      why it was passed on, or is exact; "" if it was not, and for calls that are never compressed
calls    number of calls
values   values of the tensors; those of a reduce_scatter have the parts of all processes
bytes    their bytes
sent     bytes that this process has sent; None for calls that were passed on, as their back end does not tell
seconds  time in calls; None for those that were passed on, and of shard()
error    ||Q(x) - x||^2 / ||x||^2 of own tensors, the mean of the first and of each hundredth call; None if none was measured
"""


class Counters:
    """Counts the traffic of a group, a hook or a DiLoCo, and adds it to that of the process; for any number of threads."""

    def __init__(self):
        self._rows, self._lock = {}, threading.Lock()

    def add(self, call, how, why, tensors, sent=None, seconds=None, error=None):
        """Adds a call. Returns whether it is the first of its kind."""
        values, bytes_ = sum(x.numel() for x in tensors), sum(x.numel() * x.element_size() for x in tensors)
        self.whole._add((call, how, why), values, bytes_, sent, seconds, error)
        return self._add((call, how, why), values, bytes_, sent, seconds, error)

    def _add(self, kind, values, bytes_, sent, seconds, error):
        with self._lock:
            first = kind not in self._rows
            row = self._rows.setdefault(kind, [0, 0, 0, None, None, 0, 0.0])
            row[0], row[1], row[2] = row[0] + 1, row[1] + values, row[2] + bytes_
            if sent is not None:
                row[3] = (row[3] or 0) + sent
            if seconds is not None:
                row[4] = (row[4] or 0) + seconds
            if error is not None:
                row[5], row[6] = row[5] + 1, row[6] + error
            return first

    def rows(self):
        with self._lock:
            return [Traffic(*kind, *row[:5], row[6] / row[5] if row[5] else None) for kind, row in self._rows.items()]

    def save(self, path, rank):
        """Adds a line of JSON to a file."""
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"rank": rank, "traffic": [row._asdict() for row in self.rows()]}) + "\n")


Counters.whole = Counters()  # of the process


class Report(list):
    """A list of Traffic; its str() is a table."""

    def __init__(self, rows):
        """rows: of several groups or processes; those of one kind are added up."""
        kinds = {}
        for row in rows:
            kinds.setdefault((row.call, row.how, row.why), []).append(row)
        super().__init__(sum_of(same) for _, same in sorted(kinds.items()))

    def __str__(self):
        head = ("call", "how", "calls", "MB", "MB sent", "s", "error", "why")
        lines = [head, *((row.call, row.how, f"{row.calls:,}", f"{row.bytes / 1e6:.2f}", shown(row.sent, "{:.2f}", 1e-6), shown(row.seconds, "{:.2f}"),
                          shown(row.error, "{:.2g}"), row.why) for row in self)]
        widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
        return "\n".join("  ".join(cell.ljust(width) if k in (0, 1, 7) else cell.rjust(width)
                                   for k, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines)


def shown(value, form, factor=1):
    return "" if value is None else form.format(value * factor)


def sum_of(rows):
    def total(name):
        found = [getattr(row, name) for row in rows if getattr(row, name) is not None]
        return sum(found) if found else None

    errors = [row.error for row in rows if row.error is not None]
    return Traffic(*rows[0][:3], *map(total, Traffic._fields[3:8]), sum(errors) / len(errors) if errors else None)


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m globalq report", description="Adds up what processes have sent, and how, and prints it as a "
                                     "table. A process of the back end \"globalq\" adds a line to the file that GLOBALQ_REPORT names when its "
                                     "groups are destroyed.")
    parser.add_argument("file", nargs="+", help="files that GLOBALQ_REPORT named")
    rows = []
    for path in parser.parse_args(arguments).file:
        try:
            with open(path, encoding="utf-8") as file:
                rows += [Traffic(**row) for line in file for row in json.loads(line)["traffic"]]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            print(f"globalq: {path}: {problem}; give a file that GLOBALQ_REPORT named", file=sys.stderr)
            return 1
    print(Report(rows))
    return 0
