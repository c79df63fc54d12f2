//! Lists that repeat the variants of an enum in another language or on a page: the compiler does not compare them.

use std::path::Path;

use undertone_mechanisms::optimize::Kind;

use super::read;

fn text(path: &str) -> String {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path))
}

/// The lines of a type between its braces. `start` is its first line without the brace.
fn body<'a>(source: &'a str, start: &str) -> std::str::Lines<'a> {
    let after = source.split_once(&format!("{start} {{"));
    let body = after.and_then(|(_, rest)| rest.split_once("\n}"));
    body.unwrap_or_else(|| panic!("no {start}")).0.lines()
}

/// The variants of an enum, as its source names them.
fn variants(source: &str, name: &str) -> Vec<String> {
    let is_variant = |line: &&str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
    let variant = |line: &str| line.trim().trim_end_matches([' ', '{', ',']).to_owned();
    let lines = body(source, &format!("pub enum {name}"));
    lines.filter(is_variant).map(variant).collect()
}

#[test]
fn every_event_has_a_class_in_python_and_a_row_on_its_page() {
    let events = variants(&text("crates/accounting/src/event.rs"), "Event");
    assert!(events.len() >= 20, "{events:?}");
    let classes = text("python/src/event/kinds.rs");
    let stubs = text("python/undertone_dp/_native.pyi");
    let page = text("docs/reference/accountants.md");
    for event in events {
        let starts = |line: &str| line.trim_start().starts_with(&format!("{event} ("));
        assert!(
            classes.lines().any(starts),
            "{event} in python/src/event/kinds.rs"
        );
        assert!(
            stubs.contains(&format!("class {event}(")),
            "{event} in _native.pyi"
        );
        // The two tables name it by its path and alone. `Laplace` is no part of `DiscreteLaplace` here.
        let names = |line: &&str| {
            line.split(|letter: char| !letter.is_alphanumeric())
                .any(|word| word == event)
        };
        let rows = page.lines().filter(|line| line.starts_with('|')).filter(names);
        assert!(
            rows.count() >= 2 || event == "NonPrivate",
            "{event} in accountants.md"
        );
    }
}

#[test]
fn every_kind_of_matrix_is_known_to_python_and_has_a_row_on_its_page() {
    let stubs = text("python/undertone_dp/_native.pyi");
    let (_, literal) = stubs
        .split_once("_Kind: TypeAlias = Literal[")
        .expect("the literal of the kinds");
    let (literal, _) = literal.split_once("\n]").expect("its end");
    let page = text("docs/reference/mechanisms.md");
    let source = text("crates/mechanisms/src/optimize/kind.rs");
    assert_eq!(
        variants(&source, "Kind").len(),
        Kind::ALL.len(),
        "`Kind::ALL` holds every kind"
    );
    for kind in Kind::ALL {
        let name = kind.name();
        assert!(literal.contains(&format!("\"{name}\"")), "{name} in _native.pyi");
        let is_row = |line: &str| line.starts_with("| `") && line.contains(&format!("`{name}`"));
        assert!(page.lines().any(is_row), "{name} in mechanisms.md");
    }
}

/// The fields of a struct, as its source names them, or renames them for files.
fn fields(source: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut renamed = None;
    for line in body(source, &format!("pub struct {name}")).map(str::trim) {
        if let Some((_, rest)) = line.split_once("rename = \"") {
            renamed = rest.split('"').next().map(str::to_owned);
        } else if let Some((field, _)) = line.strip_prefix("pub ").and_then(|line| line.split_once(':')) {
            found.push(renamed.take().unwrap_or_else(|| field.to_owned()));
        }
    }
    found
}

#[test]
fn every_key_of_a_service_is_on_the_page_of_federated_tasks() {
    let source = text("crates/coordinator/src/task/service.rs");
    let page = text("docs/guide/run-a-federated-task.md");
    let tables = [
        ("GroupConfig", "group."),
        ("DeadlinesConfig", "deadlines."),
        ("EligibilityConfig", "eligibility."),
        ("BudgetConfig", "budget."),
        ("PaceConfig", "pace."),
        ("ServiceConfig", ""),
    ];
    let is_table = |key: &String| tables.iter().any(|(_, table)| *table == format!("{key}."));
    let mut known = 0;
    for (name, table) in tables {
        for key in fields(&source, name).into_iter().filter(|key| !is_table(key)) {
            let key = format!("`{table}{key}`");
            let is_row = |line: &str| line.starts_with('|') && line.contains(&key);
            assert!(
                page.lines().any(is_row),
                "{key} in docs/guide/run-a-federated-task.md"
            );
            known += 1;
        }
    }
    assert!(known >= 20, "{known}");
}
