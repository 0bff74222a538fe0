"""Prints the scalars of a TensorBoard event file, or of a folder that holds one, as TensorBoard
itself reads them: a line `tag step value` for each.

    python read_events.py FILE-OR-FOLDER

Needs the package `tensorboard`. No test of the kit needs this script; it shows that the files which
the kit writes are the files that TensorBoard means.
"""

import sys

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: read_events.py FILE-OR-FOLDER")
    events = EventAccumulator(sys.argv[1], size_guidance={SCALARS: 0})  # 0: keep every value
    events.Reload()
    for tag in events.Tags()[SCALARS]:
        for event in events.Scalars(tag):
            print(f"{tag} {event.step} {event.value:.9g}")


if __name__ == "__main__":
    main()
