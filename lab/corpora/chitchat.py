"""Writes the chats of 1,315 people as a table: `python3 lab/corpora/chitchat.py FOLDER`.

FOLDER gets `chitchat.jsonl`, with `user_id`, `text` and `timestamp` (unix seconds), in the order of the data set. Without FOLDER, the
environment variable UNDERTONE_CORPORA names it. The text is the package `chitchat-dataset` 0.9.0 of PyPI, under MIT. `README.md` says more.
"""

import argparse
import datetime
import json
import os

import _wheel

PACKAGE, VERSION = "chitchat-dataset", "0.9.0"
WHEEL = "7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e"
DATASET = "d2a5d0bf6acf354fef51f3af39cbece2220d3b8f6086b658c3d335105798312a"
TABLE = "c115683a0b259d647fd081994bb94d5f4d2b4b15b48c93dd12605f70309e7e50"
LIMIT = 64 << 20


def seconds(text):
    """Unix seconds of an ISO time. All times of the data set are in UTC."""
    time = datetime.datetime.fromisoformat(text.removesuffix("Z"))
    return int(time.replace(tzinfo=datetime.timezone.utc).timestamp())


def table(dataset):
    """The rows of the data set, as JSON lines."""
    lines = []
    for conversation in json.loads(dataset).values():
        for turn in conversation["messages"]:
            for message in turn:
                row = {
                    "user_id": message["sender"],
                    "text": message["text"],
                    "timestamp": seconds(message["timestamp"]),
                }
                lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    return ("\n".join(lines) + "\n").encode()


def main():
    parser = argparse.ArgumentParser(description="Writes the chats of 1,315 people as JSON lines.")
    parser.add_argument("folder", nargs="?", default=os.environ.get("UNDERTONE_CORPORA"))
    parser.add_argument("--wheel", help="read this wheel instead of downloading it")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name a folder, or set UNDERTONE_CORPORA")
    wheel = _wheel.wheel(PACKAGE, VERSION, WHEEL, options.wheel)
    dataset = _wheel.member(wheel, "chitchat_dataset/dataset.json", LIMIT)
    _wheel.check("dataset.json", dataset, DATASET)
    rows = table(dataset)
    _wheel.check("the table", rows, TABLE)
    _wheel.write(options.folder, {"chitchat.jsonl": rows})


if __name__ == "__main__":
    _wheel.run(main)
