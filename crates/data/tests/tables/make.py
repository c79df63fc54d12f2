"""Writes the small tables of this folder with other programs, and the rows that pyarrow finds in them.

python make.py FOLDER, with pyarrow 26, polars 2.1, duckdb 2.0 and datasets 5.2. All texts are invented.
"""

import datetime
import decimal
import json
import pathlib
import sys
import uuid

import datasets
import duckdb
import polars
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

out = pathlib.Path(sys.argv[1])
TEXTS = ["The cat sat.", "She reads café menus.", None, "We met — at noon.", "修复了登录页面", "last words"]
PEOPLE = [12, 7, 12, 900, 7, 12]
TIMES = [1717588800, None, 1000000000, 1717588801, 1717588803, 1717588802]
IDS = [uuid.UUID(int=0x1234_5678 << 90 | number) for number in PEOPLE]


def table(users=None, texts=None, times=None):
    return pa.table(
        {
            "user_id": pa.array(PEOPLE) if users is None else users,
            "text": pa.array(TEXTS) if texts is None else texts,
            "time": pa.array(TIMES) if times is None else times,
        }
    )


def fractions(values, scale):
    return [None if value is None else value * scale for value in values]


PARQUET = {
    "uuid": table(users=pa.array([own.bytes for own in IDS], pa.uuid())),
    "binary": table(
        users=pa.array([str(number).encode() for number in PEOPLE], pa.binary()),
        texts=pa.array([text and text.encode() for text in TEXTS], pa.binary()),
    ),
    "large-binary": table(texts=pa.array([text and text.encode() for text in TEXTS], pa.large_binary())),
    "decimal": table(users=pa.array([decimal.Decimal(number) for number in PEOPLE], pa.decimal128(20, 0))),
    "decimal-scaled": table(
        users=pa.array([decimal.Decimal(number) for number in PEOPLE], pa.decimal128(38, 6)),
        times=pa.array([None if time is None else decimal.Decimal(time) + decimal.Decimal("0.5") for time in TIMES], pa.decimal128(18, 3)),
    ),
    "decimal-wide": table(users=pa.array([decimal.Decimal(number) for number in PEOPLE], pa.decimal256(60, 2))),
    "decimal-small": table(users=pa.array([decimal.Decimal(number) for number in PEOPLE], pa.decimal128(5, 1))),
    "category": table(users=pa.array(PEOPLE).dictionary_encode()),
    "category-float": table(users=pa.array([float(number) for number in PEOPLE]).dictionary_encode()),
    "float": table(users=pa.array([float(number) for number in PEOPLE])),
    "float32": table(
        users=pa.array(PEOPLE, pa.float32()), times=pa.array([None if time is None else time + 0.25 for time in TIMES])
    ),
    "time-text": table(
        times=pa.array(["2024-06-05T12:00:00Z", None, "1969-12-31 23:59:58", "2024-06-05T12:00:01", "1970-01-01", "2024-06-05 12:00:02"])
    ),
    "time-ms": table(times=pa.array(fractions([1717588800.25, None, -1.5, 1717588801.999, 0, 1717588802], 1000), pa.timestamp("ms"))),
    "time-ns": table(times=pa.array([1717588800_000000001, None, -1_500000000, 1717588801_999999999, 0, 1717588802_000000000], pa.timestamp("ns", "Europe/Berlin"))),
    "time-us": table(times=pa.array([1717588800_000001, None, -1_500000, 1717588801_999999, 0, 1717588802_000000], pa.timestamp("us"))),
}


def seconds(value):
    if value is None:
        return None
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    if isinstance(value, datetime.datetime):
        value = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return (value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(seconds=1)
    return int(value // 1)


def name(value):
    if isinstance(value, bytes):
        return value.decode()
    return str(value if isinstance(value, (str, uuid.UUID)) else int(value))


def rows(found):
    texts = [text.decode() if isinstance(text, bytes) else text or "" for text in found["text"].to_pylist()]
    times = found["time"]
    if pa.types.is_timestamp(times.type) and times.type.unit == "ns":
        times = times.cast(pa.int64()).to_pylist()
        times = [None if time is None else time // 10**9 for time in times]
    else:
        times = [seconds(time) for time in times.to_pylist()]
    return [list(row) for row in zip((name(user) for user in found["user_id"].to_pylist()), texts, times)]


expected = {}
for kind, made in PARQUET.items():
    pq.write_table(made, out / f"{kind}.parquet", compression="none", store_schema=kind.startswith("category"))
for codec in ("lz4", "brotli", "gzip", "zstd"):
    pq.write_table(table(), out / f"{codec}.parquet", compression=codec)
duckdb.sql(
    "copy (select uuid(user_id) as user_id, text, to_timestamp(time) as time from (values "
    "('12345678-0000-0000-0000-000000000012', 'from a duck', 1717588800.5), ('12345678-0000-0000-0000-000000000007', 'and more', -1.5)) "
    f"as rows(user_id, text, time)) to '{out}/duckdb-uuid.parquet' (format parquet, compression 'lz4_raw')"
    .replace("uuid(user_id)", "user_id::uuid")
)
polars.DataFrame({"user_id": PEOPLE, "text": TEXTS, "time": TIMES}).with_columns(
    polars.col("user_id").cast(polars.Decimal(12, 0))
).write_parquet(out / "polars-decimal.parquet", compression="brotli")
for path in sorted(set(out.glob("*.parquet")) - {out / "encrypted.parquet"}):
    expected[path.name] = rows(pq.read_table(path))


class Keys(pe.KmsClient):
    def __init__(self, _):
        pe.KmsClient.__init__(self)

    def wrap_key(self, key, name):
        return key

    def unwrap_key(self, key, name):
        return key


factory = pe.CryptoFactory(Keys)
how = pe.EncryptionConfiguration(
    footer_key="footer", column_keys={"column": ["user_id", "text"]}, plaintext_footer=True, double_wrapping=False
)
properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), how)
with pq.ParquetWriter(out / "encrypted.parquet", table().schema, encryption_properties=properties, compression="none") as writer:
    writer.write_table(table())

chunks = table(users=pa.array([str(number) for number in PEOPLE]))
arrow = {
    "stream.arrow": chunks,
    "types.arrow": table(
        users=pa.array([own.bytes for own in IDS], pa.uuid()),
        texts=pa.array(TEXTS, pa.string_view()),
        times=PARQUET["time-ms"]["time"],
    ),
    "dictionary.arrow": table(users=pa.array([str(number) for number in PEOPLE]).dictionary_encode()),
}
for kind, made in arrow.items():
    with pa.ipc.new_stream(str(out / kind), made.schema) as writer:
        writer.write_table(made, max_chunksize=4)
    expected[kind] = rows(made)
with pa.ipc.new_stream(str(out / "deltas.arrow"), arrow["dictionary.arrow"].schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
    for start in range(0, 6, 2):
        users = pa.array([str(number) for number in PEOPLE[: start + 2]]).dictionary_encode()
        part = table(users=users, texts=pa.array(TEXTS[: start + 2]), times=pa.array(TIMES[: start + 2]))
        writer.write_table(part.slice(start))
expected["deltas.arrow"] = rows(chunks)
with pa.ipc.new_file(str(out / "file.arrow"), chunks.schema) as writer:
    writer.write_table(chunks, max_chunksize=2)
expected["file.arrow"] = rows(chunks)
pyarrow.feather.write_feather(chunks, str(out / "compressed.feather"), compression="lz4")
polars.from_arrow(chunks).write_ipc(out / "polars.ipc", compression="uncompressed")
expected["polars.ipc"] = rows(chunks)
chunked = datasets.Dataset.from_dict({"user_id": [str(n) for n in PEOPLE], "text": [t or "" for t in TEXTS], "time": TIMES})
chunked.save_to_disk(out / "saved", num_shards=2)
expected["saved"] = rows(chunks)
(out / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=None) + "\n")
