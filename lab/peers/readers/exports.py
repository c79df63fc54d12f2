"""Writes exports of people by the public description of each format, imports them, and compares the rows.

Run it by hand: `python lab/peers/readers/exports.py --undertone target/debug/undertone [--fixtures FOLDER]`. It needs `pyarrow`, `datasets`, `git` and
`zstandard` or the program `zstd`; with `postgres` on the path, the dump of a database is a real one. FOLDER holds the unpacked source
packages of public parsers, whose fixtures are read as they are. All texts of the script are invented.

Each line of the output names a format, who made the file, the rows that went in, the rows that came out, and whether they are equal.
"""

import argparse
import collections
import datetime
import email.message
import email.utils
import json
import mailbox
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from xml.sax.saxutils import quoteattr

import pyarrow.parquet

START = 1717588800
TEXTS = [
    "The ferry did not run today.",
    "Then we walk to the sea,\nevery evening.",
    'She said "high water" & left.',
    "1 < 2, and 3 > 2",
    "Größe, café, straße",
    "今天没有渡船。",
    "Сегодня парома нет.",
    "🛶 and 🌊",
    "tab\there",
    "C:\\boats\\new",
    "comma, semicolon; colon: end",
    "ends with a backslash \\",
]
PEOPLE = ["ada", "ben", "cleo", "dora"]


def messages(ids):
    """Rows of user, text and unix seconds."""
    return [(ids[number % len(ids)], text, START + 60 * number) for number, text in enumerate(TEXTS * 3)]


def iso(seconds, form="%Y-%m-%dT%H:%M:%S"):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(form)


class Case:
    """An export in a folder: the options of the import, and the rows that it holds."""

    def __init__(self, options, rows, times=True):
        self.options, self.rows, self.times = options, rows, times


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slack(folder):
    rows = messages(["U01A", "U02B", "W03C"])
    days = collections.defaultdict(list)
    for user, text, time in rows:
        days["general" if time % 120 else "random"].append(
            {"type": "message", "user": user, "text": escape(text), "ts": f"{time}.000200", "team": "T1", "blocks": [{"type": "rich_text"}]}
        )
    days["general"] += [
        {"type": "message", "subtype": "channel_join", "user": "U01A", "text": "<@U01A> has joined", "ts": f"{START}.1"},
        {"type": "message", "subtype": "bot_message", "bot_id": "B1", "text": "deployed", "ts": f"{START}.2"},
        {"type": "message", "user": "U09Z", "text": "beep", "ts": f"{START}.3"},
    ]
    archive = folder / "slack.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("channels.json", json.dumps([{"id": "C1", "name": "general"}]))
        out.writestr("users.json", json.dumps([{"id": "U01A", "is_bot": False}, {"id": "U09Z", "is_bot": True}], indent=4))
        for channel, day in days.items():
            out.writestr(f"{channel}/2024-06-05.json", json.dumps(day, indent=4))
    return Case(["--as", "slack", archive], rows)


def telegram(folder):
    rows = messages(["1001", "1002", "1003"])

    def message(number, row):
        user, text, time = row
        half = len(text) // 2
        pieces = [text[:half], {"type": "bold", "text": text[half:]}] if number % 3 == 0 else text
        return {"id": number, "type": "message", "date": iso(time), "date_unixtime": str(time), "from": "x", "from_id": f"user{user}", "text": pieces}

    listed = [message(number, row) for number, row in enumerate(rows)]
    noise = [
        {"id": 900, "type": "service", "date": iso(START), "actor": "x", "action": "pin_message", "text": ""},
        {"id": 901, "type": "message", "date": iso(START), "from_id": "user1001", "forwarded_from": "y", "text": "forwarded"},
        {"id": 902, "type": "message", "date": iso(START), "from_id": "channel7", "text": "a channel"},
    ]
    chats = [
        {"name": "a", "type": "private_group", "id": 1, "messages": listed[:10] + noise},
        {"name": "b", "type": "personal_chat", "id": 2, "messages": listed[10:]},
        {"name": "c", "type": "bot_chat", "id": 3, "messages": listed[:3]},
    ]
    path = folder / "result.json"
    path.write_text(json.dumps({"about": "x", "chats": {"about": "y", "list": chats}}, indent=1, ensure_ascii=False))
    return Case(["--as", "telegram", path], rows)


def whatsapp_android(folder):
    rows = messages(["Ada", "+49 151 0000", "Ben"])
    lines = ["05/06/2024, 12:00 - Messages and calls are end-to-end encrypted."]
    for user, text, time in rows:
        lines.append(f"{iso(time, '%d/%m/%Y, %H:%M')} - {user}: {text}")
    lines.append("05/06/2024, 13:00 - Ada: <Media omitted>")
    lines.append("13/06/2024, 13:00 - Ada: This message was deleted")
    path = folder / "chat.txt"
    path.write_text("\n".join(lines) + "\n")
    return Case(["--as", "whatsapp", path], rows)


def whatsapp_ios(folder):
    rows = messages(["Ada", "Ben"])
    lines = ["\u200e[6/5/24, 11:59:00\u202fAM] Boats: \u200eMessages and calls are end-to-end encrypted."]
    for user, text, time in rows:
        clock = iso(time, "%m/%d/%y, %I:%M:%S\u202f%p").lstrip("0").replace("/0", "/").replace(", 0", ", ")
        lines.append(f"[{clock}] {user}: " + text.replace("\n", "\r\n"))
    lines.append("[6/13/24, 1:00:00\u202fPM] Ada: \u200eimage omitted")
    archive = folder / "WhatsApp Chat - Boats.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("_chat.txt", "\r\n".join(lines))
        out.writestr("00000001-PHOTO.jpg", b"\xff\xd8")
    return Case(["--as", "whatsapp", archive], rows)


def discord(folder):
    rows = messages(["501", "502", "503"])
    half = len(rows) // 2
    listed = [
        {
            "id": str(number),
            "type": "Reply" if number % 2 else "Default",
            "timestamp": iso(time) + ".123+00:00",
            "content": text,
            "author": {"id": user, "name": "x", "isBot": False},
            "attachments": [],
        }
        for number, (user, text, time) in enumerate(rows[:half])
    ]
    listed.append({"type": "GuildMemberJoin", "timestamp": iso(START), "content": "Joined the server.", "author": {"id": "501"}})
    listed.append({"type": "Default", "timestamp": iso(START), "content": "beep", "author": {"id": "9", "isBot": True}})
    (folder / "a.json").write_text(json.dumps({"guild": {"id": "1"}, "messages": listed, "messageCount": len(listed)}))
    lines = ["AuthorID,Author,Date,Content,Attachments,Reactions"]
    quoted = lambda text: '"' + text.replace('"', '""') + '"'
    for user, text, time in rows[half:] + [("501", "Pinned a message.", START)]:
        lines.append(",".join(map(quoted, [user, "x", iso(time) + ".0000000+00:00", text, "", ""])))
    (folder / "b.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    return Case(["--as", "discord", folder], rows)


def mails(rows):
    for number, (user, text, time) in enumerate(rows):
        mail = email.message.EmailMessage()
        mail["From"] = f"A Person <{user.upper()}>"
        mail["To"] = "list@example.org"
        mail["Subject"] = "Grüße"
        mail["Date"] = email.utils.format_datetime(datetime.datetime.fromtimestamp(time, datetime.timezone(datetime.timedelta(hours=2))))
        mail["Message-ID"] = f"<{number}@example.org>"
        body = f"{text}\n\nFrom here on:\n\nOn Tue, 4 Jun 2024, Ben wrote:\n> quoted {number}\n\n-- \nA Person\n"
        mail.set_content(body, charset=["utf-8", "utf-16"][number % 2] if number % 5 == 0 else "utf-8")
        if number % 4 == 0:
            mail.add_alternative("<p>another form</p>", subtype="html")
        if number % 6 == 0:
            mail.add_attachment(b"\x00\x01", maintype="application", subtype="octet-stream", filename="a.bin")
        yield mail


def mail_rows():
    rows = messages(["ada@example.org", "ben@example.org"])
    return rows, [(user, f"{text}\n\nFrom here on:", time) for user, text, time in rows]


def mbox(folder):
    sent, expected = mail_rows()
    box = mailbox.mbox(folder / "Inbox.mbox")
    for mail in mails(sent):
        box.add(mail)
    box.flush()
    return Case(["--as", "mbox", folder / "Inbox.mbox"], expected)


def maildir(folder):
    sent, expected = mail_rows()
    box = mailbox.Maildir(folder / "Maildir")
    sub = box.add_folder("Sent")
    for number, mail in enumerate(mails(sent)):
        (sub if number % 2 else box).add(mail)
    return Case(["--as", "maildir", folder / "Maildir"], expected)


def twitter(folder):
    rows = messages(["77"])
    entries = [
        {"tweet": {"id_str": str(number), "full_text": escape(text) + (" https://t.co/abc123" if number % 3 == 0 else ""), "created_at": iso(time, "%a %b %d %H:%M:%S +0000 %Y")}}
        for number, (_, text, time) in enumerate(rows)
    ]
    entries.append({"tweet": {"full_text": "RT @ben: not mine", "created_at": iso(START, "%a %b %d %H:%M:%S +0000 %Y")}})
    archive = folder / "twitter.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("data/account.js", 'window.YTD.account.part0 = [ {"account": {"accountId": "77"}} ]')
        out.writestr("data/tweets.js", "window.YTD.tweets.part0 = " + json.dumps(entries[:20], indent=2))
        out.writestr("data/tweets-part1.js", "window.YTD.tweets.part1 = " + json.dumps(entries[20:], indent=2))
        out.writestr("data/like.js", "window.YTD.like.part0 = []")
    return Case(["--as", "twitter", archive], rows)


def stackexchange(folder):
    rows = [(user, text.replace("\t", " "), time) for user, text, time in messages(["5", "6"])]
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<posts>"]
    for number, (user, text, time) in enumerate(rows):
        body = "".join(f"<p>{escape(line)}</p>\n" for line in text.split("\n")) + "<pre><code>x = 1</code></pre>"
        attribute = quoteattr(body, {"\n": "&#xA;", '"': "&quot;"})
        lines.append(f'  <row Id="{number}" PostTypeId="{1 + number % 2}" CreationDate="{iso(time)}.653" OwnerUserId="{user}" Body={attribute} />')
    lines.append(f'  <row Id="900" PostTypeId="5" CreationDate="{iso(START)}.0" OwnerUserId="5" Body="wiki" />')
    lines.append(f'  <row Id="901" PostTypeId="2" CreationDate="{iso(START)}.0" OwnerUserId="-1" Body="bot" />')
    path = folder / "Posts.xml"
    path.write_text("\ufeff" + "\r\n".join(lines + ["</posts>"]))
    return Case(["--as", "stackexchange", path], rows)


def reddit(folder):
    rows = messages(["ada", "ben"])
    lines = []
    for number, (user, text, time) in enumerate(rows):
        body = escape(text)
        row = {"author": user, "created_utc": time if number % 2 else str(time), "score": 1}
        if number % 3 == 0 and "\n" in text:
            row["title"], row["selftext"] = body.split("\n", 1)
            row["title"] = text.split("\n", 1)[0]
        else:
            row["body"] = "&gt; quoted\n" + body
        lines.append(json.dumps(row))
    for author, body in [("[deleted]", "x"), ("ada", "[removed]"), ("AutoModerator", "x")]:
        lines.append(json.dumps({"author": author, "body": body, "created_utc": START}))
    plain = folder / "RC_2024-06"
    plain.write_text("\n".join(lines) + "\n")
    subprocess.run(["zstd", "-q", "--rm", str(plain)], check=True)
    return Case(["--as", "reddit", folder / "RC_2024-06.zst"], rows)


def openai(folder):
    rows = messages(["ada", "ben", "7"])
    path = folder / "chats.jsonl"
    with path.open("w") as out:
        for user, text, _ in rows:
            content = [{"type": "text", "text": text[:3]}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": text[3:]}]
            chat = [{"role": "system", "content": "s"}, {"role": "user", "content": content if len(text) > 20 else text}, {"role": "assistant", "content": "a"}]
            out.write(json.dumps({"messages": chat, "person": user}) + "\n")
    return Case(["--as", "llm-chats", path, "--user-column", "person"], rows, times=False)


def sharegpt(folder):
    rows = [(f"conversation {number // 2 + 1}", text, None) for number, (_, text, _) in enumerate(messages(["x"]))]
    chats = [
        {"id": str(at), "conversations": [{"from": "human", "value": text} for _, text, _ in rows[at : at + 2]] + [{"from": "gpt", "value": "a"}]}
        for at in range(0, len(rows), 2)
    ]
    path = folder / "sharegpt.json"
    path.write_text(json.dumps(chats, indent=2))
    return Case(["--as", "sharegpt", path], rows, times=False)


def git(folder):
    rows = [(user, text, time) for user, text, time in messages(PEOPLE)]
    repository = folder / "repository"
    run = lambda *command, **more: subprocess.run(["git", *command], check=True, stdout=subprocess.DEVNULL, **more)
    run("init", "-q", str(repository))
    for user, text, time in rows:
        who = {f"GIT_{role}_{what}": value for role in ["AUTHOR", "COMMITTER"] for what, value in [("NAME", user), ("EMAIL", f"{user}@example.org"), ("DATE", f"{time} +0200")]}
        run("-C", str(repository), "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", text, env={**os.environ, **who})
    # Authors are always hashed, so people are told apart by their texts.
    return Case(["--git", repository], rows)


def saved_dataset(folder):
    import datasets

    rows = messages(PEOPLE)
    columns = {"user_id": [row[0] for row in rows], "text": [row[1] for row in rows], "timestamp": [row[2] for row in rows]}
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns).save_to_disk(str(folder / "saved"))
    return Case(["--arrow", folder / "saved", "--time-column", "timestamp"], rows)


def database_dump(folder):
    """The text of COPY, as Postgres writes it."""
    rows = messages(PEOPLE)
    values = ", ".join("('{}', '{}', {})".format(user, text.replace("'", "''"), time) for user, text, time in rows)
    sql = f"create table posts (user_id text, text text, timestamp bigint); insert into posts values {values};"
    data = folder / "cluster"
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
    if prefix:
        os.chmod(folder, 0o777)
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    call = lambda *command, **more: subprocess.run([*prefix, *map(str, command)], check=True, stdout=subprocess.PIPE, env=environment, cwd=folder, **more)
    call("initdb", "-D", data, "-U", "people", "-E", "UTF8", "--auth=trust", "--no-sync")
    server = subprocess.Popen([*prefix, "postgres", "-D", str(data), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"], env=environment, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        query = lambda text: call("psql", "-h", folder, "-U", "people", "-d", "postgres", "-q", "-v", "ON_ERROR_STOP=1", "-c", text)
        for _ in range(100):
            try:
                query("select 1")
                break
            except subprocess.CalledProcessError:
                import time as clock

                clock.sleep(0.3)
        query(sql)
        copied = query("copy posts to stdout with (format text, header true)").stdout
    finally:
        server.terminate()
        server.wait()
    path = folder / "posts.tsv"
    path.write_bytes(copied)
    return Case(["--csv", path, *DUMP, "--time-column", "timestamp"], rows)


DUMP = ["--dialect", "dump"]

CASES = [
    ("slack", "this script", slack),
    ("telegram", "this script", telegram),
    ("whatsapp android", "this script", whatsapp_android),
    ("whatsapp ios", "this script", whatsapp_ios),
    ("discord json and csv", "this script", discord),
    ("mbox", "mailbox of Python", mbox),
    ("maildir", "mailbox of Python", maildir),
    ("twitter", "this script", twitter),
    ("stackexchange", "this script", stackexchange),
    ("reddit zst", "this script", reddit),
    ("openai messages", "this script", openai),
    ("sharegpt", "this script", sharegpt),
    ("git log", "git", git),
    ("save_to_disk", "datasets", saved_dataset),
    ("copy text", "Postgres", database_dump),
]


def imported(undertone, options, folder):
    """The rows of a table that the program has written, and what it left out."""
    out = folder / "out.parquet"
    command = [undertone, "data", "import", "--json", *map(str, options), "--keep-user-ids", "--out", str(out), "--force"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip()
    table = pyarrow.parquet.read_table(out).to_pydict()
    times = table.get("timestamp", [None] * len(table["text"]))
    return list(zip(table["user_id"], table["text"], times)), json.loads(done.stdout).get("noted", {})


def equal(name, rows, case):
    expected = case.rows
    if name == "git log":
        # The program writes a line end behind a message, and hashes each author to one name.
        people = dict(zip((row[1].rstrip("\n") + str(row[2]) for row in rows), (row[0] for row in rows)))
        if len({people.get(text + str(time)) for _, text, time in expected}) != len(PEOPLE):
            return False
        same_person = collections.defaultdict(set)
        for user, text, time in expected:
            same_person[user].add(people.get(text + str(time)))
        if any(len(found) != 1 for found in same_person.values()):
            return False
        rows = [("", text.rstrip("\n"), time) for _, text, time in rows]
        expected = [("", text, time) for _, text, time in expected]
    if not case.times:
        expected = [(user, text, None) for user, text, _ in expected]
    minutes = name == "whatsapp android"
    floor = lambda time: time // 60 * 60 if minutes and time is not None else time
    return collections.Counter(rows) == collections.Counter((user, text, floor(time)) for user, text, time in expected)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--undertone", required=True)
    parser.add_argument("--fixtures", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    bad = 0
    for name, maker, make in CASES:
        if options.names and name not in options.names:
            continue
        folder = pathlib.Path(tempfile.mkdtemp(prefix="export-"))
        try:
            case = make(folder)
            rows, noted = imported(options.undertone, case.options, pathlib.Path(tempfile.mkdtemp(dir=folder)))
            if rows is None:
                print(f"{name:22} made by {maker:18} {len(case.rows):5} rows in, refused: {noted}")
                bad += 1
                continue
            same = equal(name, rows, case)
            bad += not same
            print(f"{name:22} made by {maker:18} {len(case.rows):5} rows in, {len(rows):5} out, {'equal' if same else 'NOT EQUAL'}  {noted}")
            if not same:
                for row in sorted(set(case.rows) - set(rows), key=str)[:3]:
                    print("   expected", row)
                for row in sorted(set(rows) - set(case.rows), key=str)[:3]:
                    print("   got     ", row)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if options.fixtures:
        bad += fixtures(options.undertone, options.fixtures)
    sys.exit(1 if bad else 0)


# Chats of WhatsApp in the source package of the parser `whatstk`, each with the form of its dates.
CHATS = {
    "lorem.txt": "%d-%m-%y %H:%M:%S",
    "lorem-2000.txt": "%Y-%m-%d %H:%M",
    "lorem-merge-part1.txt": "%Y-%m-%d, %H:%M",
    "lorem-merge-part2.txt": "%Y-%m-%d, %H:%M",
    "pokemon.txt": "%d.%m.%Y, %H:%M",
}


def fixtures(undertone, folder):
    """Reads the fixtures of others, and compares the rows with those of a regular expression."""
    head = re.compile(r"^\[?(\d+[-./]\d+[-./]\d+,? \d\d:\d\d(?::\d\d)?)(?:\] | - )(.*)$")
    bad = 0
    for path in sorted(folder.rglob("chats/whatsapp/*.txt")):
        form = CHATS[path.name]
        expected = []
        for line in path.read_text().split("\n"):
            found = head.match(line)
            if found is None:
                if expected:
                    expected[-1][1] += "\n" + line
                continue
            time = datetime.datetime.strptime(found[1], form).replace(tzinfo=datetime.timezone.utc)
            name, colon, text = found[2].partition(": ")
            expected.append([name if colon else None, text, int(time.timestamp())])
        expected = [(name, text.rstrip(), time) for name, text, time in expected if name is not None]
        with tempfile.TemporaryDirectory() as out:
            rows, noted = imported(undertone, ["--as", "whatsapp", path], pathlib.Path(out))
        if rows is None:
            print(f"{path.name:22} made by {'whatstk':18} refused: {noted}")
            bad += 1
            continue
        lost = collections.Counter(expected) - collections.Counter(rows)
        more = collections.Counter(rows) - collections.Counter(expected)
        # What differs must be counted as left out.
        same = not more and sum(lost.values()) <= sum(noted.values())
        bad += not same
        print(f"{path.name:22} made by {'whatstk':18} {len(expected):5} rows in, {len(rows):5} out, {'equal' if same else 'NOT EQUAL'}  {noted}")
        for row in list(lost)[:5]:
            print("   left out", row)
        for row in list(more)[:3]:
            print("   got     ", row)
    return bad


if __name__ == "__main__":
    main()
