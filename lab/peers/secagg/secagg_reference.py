#!/usr/bin/env python3
"""An independent reference of Undertone's secure aggregation, protocol version 1, suite 1.

    python3 lab/peers/secagg/secagg_reference.py make  > vectors/secagg.json    # from fixed secrets
    python3 lab/peers/secagg/secagg_reference.py check < vectors/secagg.json    # recompute every value from the secrets

It is written from docs/design/secure-aggregation.md and shares no code with the Rust crate. Needs the package `cryptography`.

A vector is one session: the secrets of every client, what each client sends in each round, and the sum. Rust's side
replays its own machines with the same randomness; see crates/secagg/tests/it/vectors.rs.
"""
import hashlib
import hmac
import json
import struct
import sys

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

P = 2**61 - 1
RAW = dict(encoding=serialization.Encoding.Raw, format=serialization.PublicFormat.Raw)


def u32(x):
    return struct.pack("<I", x)


def u64(x):
    return struct.pack("<Q", x)


def labelled(label, *parts):
    data = b""
    for part in (b"undertone/secagg/1", label.encode(), *parts):
        data += u64(len(part)) + part
    return hashlib.sha256(data).digest()


def hkdf(secret, salt, info):
    """One block: 32 bytes."""
    prk = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()


def derive(secret, session, purpose, a, b):
    return hkdf(secret, session, b"undertone/secagg/1/" + purpose.encode() + b"\0" + u32(a) + u32(b))


def agree(secret, public):
    return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))


def mask(key, modulus, length):
    bits = (modulus - 1).bit_length()
    size = 4 if bits <= 32 else 8
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    residues = []
    while len(residues) < length:
        stream = encryptor.update(bytes(4096))
        for at in range(0, len(stream), size):
            word = int.from_bytes(stream[at:at + size], "little") & ((1 << bits) - 1)
            if word < modulus:
                residues.append(word)
    return residues[:length]


def pack(residues, modulus):
    bits = (modulus - 1).bit_length()
    whole = 0
    for place, x in enumerate(residues):
        whole |= x << (place * bits)
    return whole.to_bytes((len(residues) * bits + 7) // 8, "little")


def limbs(secret):
    return [int.from_bytes(secret[at:at + 7], "little") for at in range(0, 32, 7)]


def share(coefficients, holder):
    """coefficients: rows of five limbs, the secret's first."""
    out = b""
    for limb in range(5):
        value = 0
        for row in reversed(coefficients):
            value = (value * (holder + 1) + row[limb]) % P
        out += u64(value)
    return out


def recover(shares):
    """shares: (holder, 40 bytes) of exactly the threshold."""
    secret = b""
    for limb, size in zip(range(5), (7, 7, 7, 7, 4)):
        total = 0
        for i, value in shares:
            weight = 1
            for j, _ in shares:
                if i != j:
                    weight = weight * (j + 1) * pow(j - i, -1, P) % P
            total += weight * int.from_bytes(value[8 * limb:8 * limb + 8], "little")
        secret += (total % P).to_bytes(size, "little")
    return secret


def neighbours(n, k, i):
    places = {(i + d) % n for d in range(1, k // 2 + 1)} | {(i - d) % n for d in range(1, k // 2 + 1)}
    if k % 2:
        places.add((i + n // 2) % n)
    return sorted(places)


def merkle_tree(entries, certificates):
    """The root, and the path of each entry. A certificate is a further part of its leaf."""
    level = [labelled("leaf", u32(i), entry, *([certificate] if certificate else []))
             for i, (entry, certificate) in enumerate(zip(entries, certificates))]
    while len(level) & (len(level) - 1):
        level.append(bytes(32))
    paths, depth = [b"" for _ in entries], 0
    while len(level) > 1:
        paths = [path + level[(i >> depth) ^ 1] for i, path in enumerate(paths)]
        level = [labelled("node", level[i], level[i + 1]) for i in range(0, len(level), 2)]
        depth += 1
    return labelled("root", u32(len(entries)), level[0]), paths


def appended(certificates):
    """What a message has behind its entries: nothing if none of them has a certificate."""
    if not any(certificates):
        return b""
    return b"".join(struct.pack("<H", len(certificate)) + certificate for certificate in certificates)


def terms(case):
    return (bytes([1, 2 if case["active"] else 1]) + u64(case["length"]) + u64(case["modulus"])
            + u32(case["min_survivors"]) + u32(case["max_clients"]))


def context_digest(case):
    c = case["context"]
    return labelled("context", bytes([1]) + bytes.fromhex(c["run"]) + u64(c["round"]) + u32(c["attempt"])
                    + u32(c["shard"]) + bytes.fromhex(c["plan_digest"]) + bytes.fromhex(c["model_digest"])
                    + terms(case))


def replay(case):
    """Everything that is sent, from the clients' secrets."""
    n, k, t = case["clients"], case["neighbours"], case["threshold"]
    modulus, length = case["modulus"], case["length"]
    context = context_digest(case)
    secrets = [{name: bytes.fromhex(value) for name, value in client.items() if isinstance(value, str)}
               for client in case["secrets"]]
    entries, public = [], []
    for client in secrets:
        identity = Ed25519PrivateKey.from_private_bytes(client["identity"])
        keys = [identity.public_key().public_bytes(**RAW)]
        keys += [X25519PrivateKey.from_private_bytes(client[name]).public_key().public_bytes(**RAW)
                 for name in ("sealing", "masking")]
        public.append(keys)
        entries.append(b"".join(keys) + identity.sign(labelled("signed keys", context, *keys)))
    certificates = [bytes.fromhex(certificate) for certificate in case.get("certificates", [""] * n)]
    root, paths = merkle_tree(entries, certificates)
    session = labelled("session", context, u32(n) + u32(k) + u32(t), root)
    head = [session + u32(i) for i in range(n)]
    out = {"session": session.hex(), "root": root.hex(),
           "keys": [(bytes([1, 1]) + context + entry + appended([certificate])).hex()
                    for entry, certificate in zip(entries, certificates)],
           "shares": [], "inputs": [], "consistency": [], "unmask_shares": []}
    if "certificates" in case:
        params = terms(case) + u32(n) + u32(k) + u32(t)
        out["rosters"] = []
        for i in range(n):
            near = neighbours(n, k, i)
            listed = b"".join(u32(j) + entries[j] + paths[j] for j in near)
            out["rosters"].append((bytes([1, 2]) + params + root + u32(i) + paths[i] + u32(k) + listed
                                   + appended([certificates[j] for j in near])).hex())
    given = {}  # (about, holder) -> seed share, key share
    for i, client in enumerate(secrets):
        sealed = b""
        rows = case["secrets"][i]
        seed_rows = [limbs(client["seed"])] + rows["seed_coefficients"]
        key_rows = [limbs(client["masking"])] + rows["key_coefficients"]
        for j in neighbours(n, k, i):
            given[i, j] = share(seed_rows, j), share(key_rows, j)
            key = derive(agree(client["sealing"], public[j][1]), session, "sealed shares", i, j)
            plain = b"".join(given[i, j])
            sealed += u32(j) + AESGCM(key).encrypt(bytes(12), plain, session + u32(i) + u32(j))
        commitment = labelled("self mask commitment", session, u32(i), client["seed"])
        out["shares"].append((bytes([1, 3]) + head[i] + commitment + u32(k) + sealed).hex())
    survivors = [i not in case["lost"] for i in range(n)]
    bits = sum(1 << i for i in range(n) if survivors[i]).to_bytes((n + 7) // 8, "little")
    total = [0] * length
    for i, client in enumerate(secrets):
        if not survivors[i]:
            continue
        y = list(case["inputs_plain"][i])
        total = [(a + b) % modulus for a, b in zip(total, y)]
        masks = [(1, mask(derive(client["seed"], session, "self mask", i, i), modulus, length))]
        for j in neighbours(n, k, i):
            agreed = agree(client["masking"], public[j][2])
            key = derive(agreed, session, "pairwise mask", min(i, j), max(i, j))
            masks.append((1 if j < i else -1, mask(key, modulus, length)))
        for sign, residues in masks:
            y = [(a + sign * b) % modulus for a, b in zip(y, residues)]
        packed = pack(y, modulus)
        out["inputs"].append((bytes([1, 5]) + head[i] + u64(len(packed)) + packed).hex())
        if case["active"]:
            signed = labelled("survivors", session, u32(n), bits)
            signature = Ed25519PrivateKey.from_private_bytes(client["identity"]).sign(signed)
            out["consistency"].append((bytes([1, 7]) + head[i] + signature).hex())
        answer = b""
        for j in neighbours(n, k, i):
            answer += u32(j) + bytes([0 if survivors[j] else 1]) + given[j, i][0 if survivors[j] else 1]
        out["unmask_shares"].append((bytes([1, 9]) + head[i] + u32(k) + answer).hex())
    # The server's side: the secrets come back from the first t shares of surviving neighbours.
    for i in range(n):
        holders = [j for j in neighbours(n, k, i) if survivors[j]][:t]
        which = 0 if survivors[i] else 1
        assert recover([(j, given[i, j][which]) for j in holders]) == secrets[i][("seed", "masking")[which]]
    out["sum"] = total
    return out


def stream(label):
    """Fixed secrets: SHA-256 of a label and a counter."""
    counter = 0
    while True:
        yield hashlib.sha256(label.encode() + u64(counter)).digest()
        counter += 1


def make(name, n, k, t, modulus, length, active, lost, certificates=None):
    words = stream(name)
    number = lambda bound: int.from_bytes(next(words), "little") % bound
    rows = lambda: [[number(P) for _ in range(5)] for _ in range(t - 1)]
    case = {
        "name": name, "clients": n, "neighbours": k, "threshold": t, "modulus": modulus, "length": length,
        "active": active, "lost": lost, "min_survivors": 2, "max_clients": 100,
        "context": {"run": next(words).hex(), "round": 7, "attempt": 1, "shard": 2,
                    "plan_digest": next(words).hex(), "model_digest": next(words).hex()},
        "secrets": [{"identity": next(words).hex(), "sealing": next(words).hex(), "masking": next(words).hex(),
                     "seed": next(words).hex(), "seed_coefficients": rows(), "key_coefficients": rows()}
                    for _ in range(n)],
        "inputs_plain": [[number(modulus) for _ in range(length)] for _ in range(n)],
    }
    if certificates:
        case["certificates"] = [b"".join(next(words) for _ in range(16))[:size].hex() for size in certificates]
    return {**case, "sent": replay(case)}


def main():
    if sys.argv[1:] == ["make"]:
        cases = [make("full, power of two", 5, 4, 3, 2**20, 33, False, [1]),
                 make("sparse, odd modulus, active", 9, 4, 3, 1000, 17, True, [4]),
                 make("odd degree, wide modulus", 6, 3, 2, 2**61 - 31, 9, False, []),
                 make("two clients, one bit", 2, 1, 1, 2, 20, True, []),
                 make("certificates of every length", 5, 4, 3, 2**22, 12, True, [3], [230, 1, 512, 0, 64])]
        source = "lab/peers/secagg/secagg_reference.py make, with the package cryptography"
        json.dump({"source": source, "protocol_version": 1, "cases": cases}, sys.stdout, indent=1)
        print()
    elif sys.argv[1:] == ["check"]:
        for case in json.load(sys.stdin)["cases"]:
            assert replay({key: value for key, value in case.items() if key != "sent"}) == case["sent"], case["name"]
            print("ok:", case["name"])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
