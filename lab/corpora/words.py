"""Writes public lists of English words, most frequent first: `python3 lab/corpora/words.py FOLDER`.

FOLDER gets `words-5000.txt`, `words-9997.txt`, `words-20000.txt` and `words-30000.txt`. With the three special ids, 9,997 words make 10,000
ids. Without FOLDER, the environment variable UNDERTONE_CORPORA names it. The list is `large_en` of the package `wordfreq` 3.1.1 of PyPI.
"""

import argparse
import gzip
import os
import struct

import _wheel

PACKAGE, VERSION = "wordfreq", "3.1.1"
WHEEL = "4b1c6ecffc6198be3396d5cf871c4423ca71c907c231348d352dd54d62b97473"
LIST = "928155d0e9e95020a377c99fdda32035ea03ec2c7c4b9194c93fc09657a3ed4a"
SIZES = {
    5000: "319f4a941a32735d956019bfea7d6fbd85e9c9d880e9850e03dac620c7968841",
    9997: "1151778fd4ccd01f9f09792f5b1d8dfc5c7595109bd283075df6c6259262fabe",
    20000: "d903505f891883c9d8b7c31ddd94f98b26366bc0ec7289324fb130e29067efda",
    30000: "a23e3c6766c839c7857deebfc979b0a8399d9613a639090c79bc25abc95195a3",
}
LIMIT = 16 << 20


def unpacked(data):
    """The one value of a file of msgpack, of the kinds that the list has: arrays, maps, strings and small integers."""
    value, end = _value(data, 0, 0)
    if end != len(data):
        raise _wheel.Refused(f"large_en: expected one value, got {len(data) - end} bytes behind it")
    return value


def _value(data, at, depth):
    def number(form, at):
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)

    if depth > 8 or at >= len(data):
        raise _wheel.Refused(f"large_en: expected msgpack, got something else at byte {at}")
    kind, at = data[at], at + 1
    if kind < 0x80:
        return kind, at
    if 0x80 <= kind < 0x90:
        count, pairs = kind & 0x0F, {}
        for _ in range(count):
            key, at = _value(data, at, depth + 1)
            pairs[key], at = _value(data, at, depth + 1)
        return pairs, at
    if 0x90 <= kind < 0xA0 or kind in (0xDC, 0xDD):
        if kind < 0xA0:
            count = kind & 0x0F
        else:
            count, at = number(">H" if kind == 0xDC else ">I", at)
        items = []
        for _ in range(count):
            item, at = _value(data, at, depth + 1)
            items.append(item)
        return items, at
    if 0xA0 <= kind < 0xC0 or kind in (0xD9, 0xDA):
        if kind < 0xC0:
            length = kind & 0x1F
        else:
            length, at = number(">B" if kind == 0xD9 else ">H", at)
        return data[at : at + length].decode(), at + length
    raise _wheel.Refused(f"large_en: expected an array, a map, a string or a small integer, got the byte {kind:#x}")


def words(packed):
    """The words with at least one letter, most frequent first. A word with a control character is left out."""
    header, *buckets = unpacked(packed)
    if header != {"format": "cB", "version": 1}:
        raise _wheel.Refused(f"large_en: expected the format cB 1, got {header}")
    return [
        word
        for bucket in buckets
        for word in bucket
        if any(letter.isalpha() for letter in word) and word.isprintable()
    ]


def main():
    parser = argparse.ArgumentParser(description="Writes public lists of English words.")
    parser.add_argument("folder", nargs="?", default=os.environ.get("UNDERTONE_CORPORA"))
    parser.add_argument("--wheel", help="read this wheel instead of downloading it")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name a folder, or set UNDERTONE_CORPORA")
    wheel = _wheel.wheel(PACKAGE, VERSION, WHEEL, options.wheel)
    packed = _wheel.member(wheel, "wordfreq/data/large_en.msgpack.gz", LIMIT)
    packed = gzip.decompress(packed)
    _wheel.check("large_en", packed, LIST)
    all_words = words(packed)
    files = {}
    for size, sha256 in SIZES.items():
        data = "".join(f"{word}\n" for word in all_words[:size]).encode()
        _wheel.check(f"the list of {size} words", data, sha256)
        files[f"words-{size}.txt"] = data
    _wheel.write(options.folder, files)


if __name__ == "__main__":
    _wheel.run(main)
