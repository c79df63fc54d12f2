//! Files that are no text, recognised by their first bytes, with what to do about them.

use std::path::Path;

use crate::error::DataError;

/// Something else than text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// The content of the file, with its article.
    got: &'static str,
    /// The next step.
    help: &'static str,
}

impl Foreign {
    pub(crate) fn error(self, path: &Path) -> DataError {
        DataError::Foreign {
            path: path.to_owned(),
            got: self.got,
            help: self.help,
        }
    }
}

/// Contents with a first mark that no text has.
const MARKS: &[(&[u8], Foreign)] = &[
    (b"SQLite format 3\0", SQLITE),
    (b"PAR1\x15", PARQUET),
    (b"ARROW1\0\0", ARROW),
    (b"\xff\xff\xff\xff", ARROW),
    (
        b"\xfd7zXZ\0",
        packed("a file packed by xz", "unpack it with `xz -d`"),
    ),
    (
        b"7z\xbc\xaf\x27\x1c",
        packed("a 7z archive", "unpack it with `7z x`"),
    ),
    (
        b"Rar!\x1a\x07",
        packed("a RAR archive", "unpack it with `unrar x`"),
    ),
    (
        b"\x04\x22\x4d\x18",
        packed("a file packed by lz4", "unpack it with `lz4 -d`"),
    ),
    (
        b"\x1f\x9d",
        packed("a file packed by compress", "unpack it with `uncompress`"),
    ),
    (
        b"%PDF-",
        packed("a PDF document", "save its text as a plain text file"),
    ),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OFFICE),
    (b"version https://git-lfs.github.com/spec/", LFS),
    // The mark of UTF-32 begins like that of UTF-16.
    (b"\xff\xfe\0\0", UTF_32),
    (b"\0\0\xfe\xff", UTF_32),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
];

const fn packed(got: &'static str, help: &'static str) -> Foreign {
    Foreign { got, help }
}

const SQLITE: Foreign = Foreign {
    got: "an SQLite database",
    help: "`undertone data import --sqlite FILE --query 'select ...'` makes a table of it",
};
const PARQUET: Foreign = Foreign {
    got: "a Parquet file",
    help: "read it with --parquet, or kind = \"parquet\" in a run file",
};
const ARROW: Foreign = Foreign {
    got: "an Arrow file",
    help: "read it with --arrow, or kind = \"arrow\" in a run file",
};
const OFFICE: Foreign = Foreign {
    got: "an office document, such as an Excel workbook",
    help: "save the sheet as CSV in UTF-8",
};
const LFS: Foreign = Foreign {
    got: "a pointer of Git LFS, not the file itself",
    help: "fetch the file with `git lfs pull`",
};
const UTF_16: Foreign = Foreign {
    got: "text in UTF-16",
    help: "convert it with `iconv -f UTF-16 -t UTF-8 FILE > utf8.txt`",
};
const UTF_32: Foreign = Foreign {
    got: "text in UTF-32",
    help: "convert it with `iconv -f UTF-32 -t UTF-8 FILE > utf8.txt`",
};
const HTML: Foreign = Foreign {
    got: "an HTML page",
    help: "download the file itself instead of the page that shows it",
};
const XML: Foreign = Foreign {
    got: "an XML document",
    help: "convert it to CSV or to JSON lines",
};

/// The content that begins with these bytes, where it is no text.
pub(crate) fn of(head: &[u8]) -> Option<Foreign> {
    let marked = MARKS.iter().find(|(mark, _)| head.starts_with(mark));
    if let Some((_, foreign)) = marked {
        return Some(*foreign);
    }
    // `BZh` alone may begin a word, so the mark of the first block counts as well.
    if head.starts_with(b"BZh") && head.get(4..10) == Some(b"1AY&SY") {
        return Some(packed("a file packed by bzip2", "unpack it with `bzip2 -d`"));
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some(packed("a tar archive", "unpack it with `tar -xf`"));
    }
    is_wide(head).then_some(Foreign {
        got: "text in UTF-16",
        help: "convert it with `iconv -f UTF-16LE -t UTF-8 FILE > utf8.txt`",
    })
}

/// UTF-16 without a mark: every second byte of its first letters is zero.
fn is_wide(head: &[u8]) -> bool {
    let start = head.get(..8).unwrap_or_default();
    let zero = |first: usize| start.iter().skip(first).step_by(2).all(|&byte| byte == 0);
    start.len() == 8 && (zero(0) != zero(1))
}

/// The markup that begins with these bytes. It is text, but no table.
pub(crate) fn markup(head: &[u8]) -> Option<Foreign> {
    let text = head.trim_ascii_start();
    let text = text.strip_prefix(super::coded::BYTE_ORDER_MARK).unwrap_or(text);
    let begins = |mark: &[u8]| (text.get(..mark.len())).is_some_and(|start| start.eq_ignore_ascii_case(mark));
    if begins(b"<!doctype html") || begins(b"<html") {
        return Some(HTML);
    }
    begins(b"<?xml").then_some(XML)
}

/// The document whose zip archive has an entry of this name.
pub(crate) fn document_with(entry: &str) -> Option<Foreign> {
    matches!(entry, "[Content_Types].xml" | "mimetype").then_some(OFFICE)
}
