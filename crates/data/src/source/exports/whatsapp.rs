//! Text files of WhatsApp, from Android (`5/6/24, 12:00 - Ada: Hello`) and iOS (`[05.06.24, 12:00:00] Ada: Hello`).
//!
//! The shape of the date follows the language of the phone. The order of day and month is found from all dates of a file. Where they allow
//! two orders that differ, the reader refuses to guess.

mod lines;

use std::path::Path;

use crate::error::{DataError, Place, Result, bad_value, empty, invalid, quoted};
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;
use lines::{Head, Shape, head};
use undertone_settings::time::days_of_date;

/// Maximum size of a chat.
const MAX_CHAT_BYTES: u64 = 128 << 20;
/// Years in which a message can have been written.
const YEARS: std::ops::Range<i64> = 2009..2100;
/// Seconds by which a message may stand behind a later one. Phones that were offline deliver late.
const MAX_BACK: i64 = 86_400;

/// The order of the numbers of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DateOrder {
    /// Day, month, year.
    Dmy,
    /// Month, day, year.
    Mdy,
    /// Year, month, day.
    Ymd,
}

impl DateOrder {
    const ALL: [DateOrder; 3] = [DateOrder::Dmy, DateOrder::Mdy, DateOrder::Ymd];

    /// The name of the order on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DateOrder::Dmy => "dmy",
            DateOrder::Mdy => "mdy",
            DateOrder::Ymd => "ymd",
        }
    }

    /// Seconds of a head, as if its clock stood in UTC. `None` where the numbers are no date in this order.
    fn seconds(self, head: &Head<'_>) -> Option<i64> {
        let [one, two, three] = head.date;
        let [year, month, day] = match self {
            DateOrder::Dmy => [three, two, one],
            DateOrder::Mdy => [three, one, two],
            DateOrder::Ymd => [one, two, three],
        };
        let year = match (year.digits, year.value) {
            (2, value) => 2000 + value,
            // The calendar of Thailand is 543 years ahead.
            (4, value @ 2500..2700) => value - 543,
            (4, value) => value,
            _ => return None,
        };
        if month.digits > 2 || day.digits > 2 || !YEARS.contains(&year) {
            return None;
        }
        let days = days_of_date(year, month.value, day.value)?;
        Some(days * 86_400 + head.seconds)
    }
}

pub(super) fn read(tree: &mut Tree, order: Option<DateOrder>, sink: &mut Sink<'_, '_>) -> Result<()> {
    let files = tree.with_endings(&[".txt"]);
    if files.is_empty() {
        return Err(empty(tree.root(), "chat of WhatsApp (a file that ends in .txt)"));
    }
    for name in files {
        let path = tree.path(&name);
        let bytes = tree.bytes(&name, MAX_CHAT_BYTES, "export without media")?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = 1 + bytes[..error.valid_up_to()]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            bad_value(&path, Place::Line(line as u64), "text", "UTF-8", "other bytes")
        })?;
        sink.lines_of(&path)?;
        chat(&path, text, order, sink)?;
    }
    Ok(())
}

/// `true` for the start of a chat.
pub(super) fn is_chat(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    Shape::ALL.into_iter().any(|shape| head(first, shape).is_some())
}

fn chat(path: &Path, text: &str, order: Option<DateOrder>, sink: &mut Sink<'_, '_>) -> Result<()> {
    // The first head decides between the two shapes: a line of the other one is text that somebody pasted.
    let mut shape = None;
    let heads: Vec<(usize, Head<'_>)> = text
        .split('\n')
        .enumerate()
        .filter_map(|(number, line)| Some((number, head(line, shape_of(&mut shape, line)?)?)))
        .collect();
    let Some((first, _)) = heads.first() else {
        let line = text
            .split('\n')
            .find(|line| !line.trim().is_empty())
            .unwrap_or("");
        let expected =
            "lines such as \"05/06/2024, 12:00 - Name: text\" or \"[05/06/2024, 12:00:00] Name: text\"";
        return Err(bad_value(
            path,
            Place::Line(1),
            "chat of WhatsApp",
            expected,
            quoted(line),
        ));
    };
    let first = *first;
    if let Some((number, line)) = text
        .split('\n')
        .enumerate()
        .take(first)
        .find(|(_, line)| !line.trim().is_empty())
    {
        let expected = "a line that begins with a date, as the rest of the file has";
        return Err(bad_value(
            path,
            Place::Line(number as u64 + 1),
            "chat of WhatsApp",
            expected,
            quoted(line),
        ));
    }
    let order = match order {
        Some(order) => order,
        None => recognised(path, &heads)?,
    };
    let mut lines = text.split('\n').enumerate().skip(first).peekable();
    for (at, (number, head)) in heads.iter().enumerate() {
        let end = heads.get(at + 1).map_or(usize::MAX, |next| next.0);
        let mut body = head.text.to_owned();
        lines.next();
        while let Some((_, line)) = lines.next_if(|(number, _)| *number < end) {
            body.push('\n');
            body.push_str(line.strip_suffix('\r').unwrap_or(line));
        }
        let place = *number as u64 + 1;
        let time = order.seconds(head).ok_or_else(|| {
            let expected = format!("a date in the order {} (--date-order)", order.name());
            bad_value(
                path,
                Place::Line(place),
                "date",
                expected,
                quoted(head.whole_date),
            )
        })?;
        let Some(name) = head.name else {
            sink.leave_out("lines of the program left out");
            continue;
        };
        match lines::written(&body) {
            Ok(text) => sink.message(place, name, &text, Some(time))?,
            Err(kind) => sink.leave_out(kind),
        }
    }
    Ok(())
}

fn shape_of(shape: &mut Option<Shape>, line: &str) -> Option<Shape> {
    if shape.is_none() {
        *shape = Shape::ALL.into_iter().find(|&shape| head(line, shape).is_some());
    }
    *shape
}

/// The one order in which all dates of the file are dates, and in which they hardly ever go back.
fn recognised(path: &Path, heads: &[(usize, Head<'_>)]) -> Result<DateOrder> {
    let times = |order: DateOrder| -> Option<Vec<i64>> {
        heads.iter().map(|(_, head)| order.seconds(head)).collect()
    };
    let possible: Vec<(DateOrder, Vec<i64>)> = DateOrder::ALL
        .into_iter()
        .filter(|&order| order != DateOrder::Ymd || heads.iter().all(|(_, head)| head.date[0].digits == 4))
        .filter_map(|order| Some((order, times(order)?)))
        .collect();
    // Points stand between days and months alone, and so does nothing that a language with months first writes.
    let with_points = heads.iter().all(|(_, head)| head.separator != '/');
    let steps_back = |times: &[i64]| {
        times
            .windows(2)
            .filter(|pair| pair[1] < pair[0] - MAX_BACK)
            .count()
    };
    let Some(best) = possible.iter().map(|(_, times)| steps_back(times)).min() else {
        return Err(no_order(path, heads));
    };
    let left: Vec<&(DateOrder, Vec<i64>)> = possible
        .iter()
        .filter(|(_, times)| steps_back(times) == best)
        .collect();
    match left.as_slice() {
        [(order, _)] => Ok(*order),
        [(order, times), others @ ..] if others.iter().all(|(_, other)| other == times) => Ok(*order),
        several if with_points && several.iter().any(|(order, _)| *order == DateOrder::Dmy) => {
            Ok(DateOrder::Dmy)
        }
        _ => Err(ambiguous(path, heads)),
    }
}

fn ambiguous(path: &Path, heads: &[(usize, Head<'_>)]) -> DataError {
    let date = heads.first().map_or("", |(_, head)| head.whole_date);
    invalid(
        "--date-order",
        format!(
            "dmy or mdy, since the dates of {} can be read in both orders",
            path.display()
        ),
        format!("none, and dates such as {}", quoted(date)),
    )
}

/// The first line whose numbers fit no order that fits all lines before it.
fn no_order(path: &Path, heads: &[(usize, Head<'_>)]) -> DataError {
    let mut orders = vec![DateOrder::Dmy, DateOrder::Mdy];
    for (number, head) in heads {
        orders.retain(|order| order.seconds(head).is_some());
        if orders.is_empty() {
            let expected =
                "a date in the order of the lines before it; name the order of the file by --date-order";
            return bad_value(
                path,
                Place::Line(*number as u64 + 1),
                "date",
                expected,
                quoted(head.whole_date),
            );
        }
    }
    ambiguous(path, heads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::exports::ExportKind;
    use crate::source::exports::testing::{Export, counts, row};

    const ANDROID: &str = "05/06/2024, 12:00 - Messages and calls are end-to-end encrypted. Tap to learn more.\n\
        05/06/2024, 12:00 - Ada created group \"Boats: big and small\"\n\
        05/06/2024, 12:00 - Ada: Hello\nsecond line: with a colon\n\n13/06/2024 is no head\n\
        05/06/2024, 12:01 - +49 151 000000: Hi @\u{2068}Ada\u{2069} and @4915100000000\n\
        05/06/2024, 12:02 - Ada: <Media omitted>\n\
        05/06/2024, 12:03 - Ada: This message was deleted\n\
        13/06/2024, 00:04 - Ben: moved \u{200e}<This message was edited>\n\
        13/06/2024, 00:05 - Ben: IMG-20240613-WA0001.jpg (file attached)\nwith a caption\n";

    const IOS: &str = "\u{200e}[6/5/24, 12:00:00\u{202f}PM] Boats: \u{200e}Messages and calls are end-to-end encrypted.\r\n\
        [6/5/24, 12:00:05\u{202f}PM] ~\u{202f}Ada: Hello\r\nagain\r\n\
        [6/13/24, 12:01:06\u{202f}AM] Ben: \u{200e}image omitted\r\n\
        [6/13/24, 12:01:07\u{202f}AM] Ben: 1 < 2\r\n";

    #[test]
    fn a_chat_of_android_gives_the_messages_of_people() {
        let export = Export::file(ExportKind::WhatsApp, "chat.txt", ANDROID.as_bytes());
        assert_eq!(
            export.rows(),
            [
                row(
                    "Ada",
                    "Hello\nsecond line: with a colon\n\n13/06/2024 is no head",
                    1_717_588_800
                ),
                row("+49 151 000000", "Hi @Ada and @user", 1_717_588_860),
                row("Ben", "moved", 1_718_237_040),
                row("Ben", "with a caption", 1_718_237_100),
            ]
        );
        assert_eq!(
            export.left_out(),
            counts(&[
                ("deleted messages left out", 1),
                ("lines of the program left out", 2),
                ("media without text left out", 1)
            ])
        );
    }

    #[test]
    fn a_chat_of_ios_gives_the_messages_of_people() {
        let export = Export::zip(ExportKind::WhatsApp, &[("_chat.txt", IOS), ("photo.jpg", "x")]);
        assert_eq!(
            export.rows(),
            [
                row("Ada", "Hello\nagain", 1_717_588_805),
                row("Ben", "1 < 2", 1_718_236_867)
            ]
        );
        assert_eq!(
            export.left_out(),
            counts(&[
                ("lines of the program left out", 1),
                ("media without text left out", 1)
            ])
        );
    }

    #[test]
    fn dates_of_many_phones_are_read() {
        fn check(lines: &str, expected: &[i64]) {
            let rows = Export::file(ExportKind::WhatsApp, "chat.txt", lines.as_bytes()).rows();
            let times: Vec<i64> = rows.iter().filter_map(|row| row.2).collect();
            assert_eq!(times, expected, "{lines}");
        }
        let noon = 1_717_588_800;
        check("05.06.24, 12:00 - Ada: a", &[noon]);
        check("5.6.2024 klo 12.00 - Ada: a", &[noon]);
        check("05-06-2024 12:00 - Ada: a", &[noon]);
        check("2024-06-05, 12:00 - Ada: a", &[noon]);
        check("2024/06/05 12:00 - Ada: a", &[noon]);
        check("[2024/06/05, 12:00:00] Ada: a", &[noon]);
        check("13/6/24, 12:00 p.\u{a0}m. - Ada: a", &[noon + 8 * 86_400]);
        check("13/6/24, 1:00 pm - Ada: a", &[noon + 8 * 86_400 + 3600]);
        check("6/13/24, 12:00 AM - Ada: a", &[noon + 8 * 86_400 - 43_200]);
        check("2024. 6. 5. 오후 12:00, Ada : a", &[noon]);
        check("2024/6/5 下午12:00 - Ada: a", &[noon]);
        check(
            "\u{200f}٥/٦/٢٠٢٤, ١٢:٠٠ - Ada: a\n١٣/٦/٢٠٢٤, ١٢:٠٠ - Ada: a",
            &[noon, noon + 8 * 86_400],
        );
        // Only one order lets the time go forward.
        check(
            "1/2/24, 12:00 - Ada: a\n2/1/24, 12:00 - Ada: b\n3/1/24, 12:00 - Ada: c",
            &[1_704_196_800, 1_706_788_800, 1_709_294_400],
        );
        // Both orders give one time.
        check("6/6/24, 12:00 - Ada: a", &[noon + 86_400]);
        // The calendar of Thailand.
        check(
            "5/6/2567 12:00 - Ada: a\n13/6/2567 12:00 - Ada: b",
            &[noon, noon + 8 * 86_400],
        );
    }

    #[test]
    fn dates_of_two_orders_are_never_guessed() {
        let chat = b"5/6/24, 12:00 - Ada: a\n6/7/24, 12:00 - Ada: b\n";
        let export = Export::file(ExportKind::WhatsApp, "chat.txt", chat);
        let error = export.error();
        assert!(error.contains("--date-order: expected dmy or mdy"), "{error}");
        let times = |order| {
            let rows = export.with_order(order).rows();
            rows.iter().filter_map(|row| row.2).collect::<Vec<_>>()
        };
        assert_eq!(times(DateOrder::Dmy), [1_717_588_800, 1_720_267_200]);
        assert_eq!(times(DateOrder::Mdy), [1714996800, 1717761600]);
        let wrong = Export::file(
            ExportKind::WhatsApp,
            "c.txt",
            b"31/1/24, 12:00 - A: a\n1/31/24, 12:00 - A: b\n",
        );
        let error = wrong.error();
        assert!(
            error.contains("c.txt, line 2: date: expected a date in the order"),
            "{error}"
        );
        let error = wrong.with_order(DateOrder::Mdy).error();
        assert!(
            error.contains("c.txt, line 1: date: expected a date in the order mdy"),
            "{error}"
        );
    }

    #[test]
    fn a_text_that_is_no_chat_names_its_line() {
        let error = Export::file(ExportKind::WhatsApp, "c.txt", b"Dear diary\n").error();
        assert!(
            error.contains("c.txt, line 1: chat of WhatsApp") && error.contains("Dear diary"),
            "{error}"
        );
        let error = Export::file(
            ExportKind::WhatsApp,
            "c.txt",
            b"Dear diary\n13/6/24, 12:00 - A: a",
        )
        .error();
        assert!(
            error.contains("expected a line that begins with a date"),
            "{error}"
        );
        let error = Export::file(ExportKind::WhatsApp, "c.txt", b"13/6/24, 12:00 - A: a\n\xff\n").error();
        assert!(error.contains("c.txt, line 2: text: expected UTF-8"), "{error}");
    }
}
