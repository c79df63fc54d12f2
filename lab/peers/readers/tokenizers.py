"""Tokenizers of many kinds, and the ids that the Python package `tokenizers` gives 50 texts by each of them.

    python lab/peers/readers/tokenizers.py FOLDER
    TOKENIZERS=FOLDER cargo test -p undertone-text --lib -- --ignored --exact subwords::by_hand::ids_equal_those_of_the_python_package

Each kind is a file `tokenizer.json` with a `texts.json` beside it. They are trained on the texts below, which stand in the public domain or
were written for this script. Needs tokenizers 0.22 or later.
"""

import itertools
import json
import pathlib
import sys

# The script has the name of the package: it must not import itself.
sys.path = [path for path in sys.path if pathlib.Path(path or ".").resolve() != pathlib.Path(__file__).resolve().parent]

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

TEXTS = [
    "",
    " ",
    "   leading and trailing   ",
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "THE QUICK BROWN FOX",
    "don't won't I'm we've they'll it's",
    "It's 5\" tall, isn't it?",
    "naïve café résumé coöperate",
    "nai\u0308ve cafe\u0301 re\u0301sume\u0301",
    "tab\tseparated\tvalues",
    "line one\nline two\r\nline three",
    "\n\n\n",
    "1234567890 3.14159 1,000,000 0x1F",
    "2026-11-30T01:11:16Z",
    "user@example.org https://example.org/a?b=c&d=e#f",
    "snake_case camelCase kebab-case SCREAMING_CASE",
    "fn main() { println!(\"{}\", x[0] + 1); }",
    "!!! ??? ... --- ___ *** ///",
    "(a) [b] {c} <d> «e» „f“ ‘g’ “h”",
    "<s> </s> <unk> [CLS] [SEP] [PAD] <|endoftext|>",
    "text<s>without</s>spaces<|endoftext|>here",
    "Der schnelle braune Fuchs springt über den faulen Hund. Straße, Größe, Ärger.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "ऋषियों को सताने वाले दुष्ट राक्षसों",
    "敏捷的棕色狐狸跳过了懒狗。",
    "色は匂へど散りぬるを我が世誰ぞ常ならむ",
    "いろはにほへと ちりぬるを カタカナ ｶﾀｶﾅ",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "다람쥐 헌 쳇바퀴에 타고파",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "דג סקרן שט בים מאוכזב",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İIıi",
    "Zażółć gęślą jaźń",
    "😀 😃 👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️",
    "emoji😀inside👍words",
    "ﬁ ﬂ Ⅷ ½ ² ™ ① ＡＢＣ",
    "zero\u200bwidth\u200djoin\u00a0nbsp\u2003em\u3000ideographic",
    "\ufeffbyte order mark",
    "soft\u00adhyphen and \u2011 non-breaking",
    "control \u0001 \u0007 \u007f bytes",
    "\u0000",
    "replacement \ufffd character",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "x" * 1200,
    "word " * 300,
    "mixed русский and 中文 and العربية in one line 123",
    "▁metaspace ▁ Ġ Ċ ##piece",
]
assert len(TEXTS) == 50

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def trained(tokenizer, kind):
    options = {"special_tokens": SPECIAL, "show_progress": False}
    if kind == "bytes":
        options |= {"vocab_size": 700, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    trainer = {
        "bpe": trainers.BpeTrainer,
        "bytes": trainers.BpeTrainer,
        "wordpiece": trainers.WordPieceTrainer,
        "wordlevel": trainers.WordLevelTrainer,
        "unigram": trainers.UnigramTrainer,
    }[kind]
    if kind == "unigram":
        options |= {"unk_token": "<unk>"}
    options.setdefault("vocab_size", 600)
    tokenizer.train_from_iterator([text for text in TEXTS if len(text) < 1000] * 3, trainer(**options))


def model(kind):
    return {
        "bpe": lambda: models.BPE(unk_token="<unk>"),
        "bytes": lambda: models.BPE(),
        "wordpiece": lambda: models.WordPiece(unk_token="<unk>"),
        "wordlevel": lambda: models.WordLevel(unk_token="<unk>"),
        "unigram": lambda: models.Unigram(),
    }[kind]()


NORMALIZERS = {
    "none": None,
    "nfc": normalizers.NFC(),
    "nfd": normalizers.NFD(),
    "nfkc": normalizers.NFKC(),
    "nfkd-strip-lower": normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
    "bert": normalizers.BertNormalizer(),
    "bert-cased": normalizers.BertNormalizer(lowercase=False, strip_accents=True, handle_chinese_chars=False),
    "nmt": normalizers.Nmt(),
    "strip": normalizers.Strip(left=True, right=True),
    "replace": normalizers.Sequence([normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace("'", "’")]),
    "llama": normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
}
SPLITS = {
    "whitespace": pre_tokenizers.Whitespace(),
    "split": pre_tokenizers.WhitespaceSplit(),
    "bert": pre_tokenizers.BertPreTokenizer(),
    "metaspace": pre_tokenizers.Metaspace(),
    "metaspace-first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "metaspace-never": pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
    "punctuation": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]),
    "digits": pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]),
    "delimiter": pre_tokenizers.CharDelimiterSplit(" "),
    "scripts": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.UnicodeScripts()]),
    "regex": pre_tokenizers.Split(Regex(r"\p{L}+|\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s+"), behavior="isolated"),
    "merged": pre_tokenizers.Split(" ", behavior="merged_with_next"),
}
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "roberta": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "llama3": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(GPT4), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    ),
    "starcoder": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
}


def kinds():
    for split in SPLITS:
        for kind in ("bpe", "unigram"):
            yield f"{kind}-{split}", kind, "none", SPLITS[split]
    for split in ("whitespace", "bert", "digits", "scripts"):
        for kind in ("wordpiece", "wordlevel"):
            yield f"{kind}-{split}", kind, "none", SPLITS[split]
    for normalizer in NORMALIZERS:
        if normalizer != "none":
            yield f"bpe-{normalizer}", "bpe", normalizer, None if normalizer == "llama" else SPLITS["whitespace"]
            yield f"wordpiece-bert-{normalizer}", "wordpiece", normalizer, SPLITS["bert"]
    for split, normalizer in itertools.product(BYTES, ("none", "nfc")):
        yield f"{split}-{normalizer}", "bytes", normalizer, BYTES[split]


def made():
    for name, kind, normalizer, split in kinds():
        tokenizer = Tokenizer(model(kind))
        if NORMALIZERS[normalizer] is not None:
            tokenizer.normalizer = NORMALIZERS[normalizer]
        if split is not None:
            tokenizer.pre_tokenizer = split
        trained(tokenizer, kind)
        if kind == "bytes":
            tokenizer.decoder = decoders.ByteLevel()
        yield name, tokenizer
    # What a file may hold beside its model.
    base = lambda: next(tokenizer for name, tokenizer in made_plain() if name == "bpe-whitespace")  # noqa: E731
    for name, change in {
        "template": lambda t: setattr(
            t, "post_processor", processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
        ),
        "truncation": lambda t: t.enable_truncation(5),
        "padding": lambda t: t.enable_padding(pad_id=3, pad_token="<pad>", length=40),
        "added-strips": lambda t: t.add_tokens([AddedToken("fox", lstrip=True, rstrip=True), AddedToken("dog", single_word=True)]),
        "added-raw": lambda t: t.add_tokens([AddedToken("THE", normalized=False), AddedToken("über", normalized=True)]),
        "special-added": lambda t: t.add_special_tokens(["<|endoftext|>", "[CLS]", "[SEP]"]),
    }.items():
        tokenizer = base()
        change(tokenizer)
        yield name, tokenizer
    fused = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=False))
    fused.pre_tokenizer = pre_tokenizers.Whitespace()
    trained(fused, "bpe")
    yield "bpe-fused", fused
    # Bytes for what the vocabulary lacks, as Llama 2 and Gemma.
    plain = json.loads(fused.to_str())
    vocab = dict(plain["model"]["vocab"])
    for byte in range(256):
        vocab.setdefault(f"<0x{byte:02X}>", len(vocab))
    plain["model"] |= {"vocab": vocab, "byte_fallback": True}
    yield "bpe-byte-fallback", Tokenizer.from_str(json.dumps(plain))
    plain["model"]["ignore_merges"] = True
    yield "bpe-ignore-merges", Tokenizer.from_str(json.dumps(plain))


def made_plain():
    tokenizer = Tokenizer(model("bpe"))
    tokenizer.pre_tokenizer = SPLITS["whitespace"]
    trained(tokenizer, "bpe")
    yield "bpe-whitespace", tokenizer


def main():
    folder = pathlib.Path(sys.argv[1])
    count = 0
    for name, tokenizer in made():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(place / "tokenizer.json"))
        again = Tokenizer.from_file(str(place / "tokenizer.json"))
        # A person who writes "</s>" has written four letters, and a text is neither cut nor filled up.
        again.encode_special_tokens = True
        again.no_truncation()
        again.no_padding()
        ids = [again.encode(text, add_special_tokens=False).ids for text in TEXTS]
        (place / "texts.json").write_text(json.dumps([{"text": text, "ids": each} for text, each in zip(TEXTS, ids)]))
        count += 1
    print(f"{count} kinds, {len(TEXTS)} texts")


main()
