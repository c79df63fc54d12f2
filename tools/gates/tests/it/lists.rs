//! Lists that repeat the variants of an enum in another language or on a page: the compiler does not compare them.

use std::path::Path;

use syn::{Attribute, Expr, Fields, Ident, ImplItem, Item, LitStr};
use undertone_gates::Source;

use super::{read, root};

fn text(path: &str) -> String {
    read(&root().join(path))
}

fn items(path: &str) -> Vec<Item> {
    Source::parse(Path::new(path), &text(path)).file.items
}

/// The text of `key = ".."` in an attribute of serde.
fn by_serde(attributes: &[Attribute], key: &str) -> Option<String> {
    let mut found = None;
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("serde"))
    {
        // An argument of another form ends the search of this attribute.
        let _ = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident(key) {
                found = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if let Ok(value) = meta.value() {
                value.parse::<Expr>()?;
            }
            Ok(())
        });
    }
    found
}

/// A name as files have it: the one that serde gives it, or the name of the variant in kebab-case where serde says so.
fn in_files(ident: &Ident, own: &[Attribute], of_type: &[Attribute]) -> String {
    if let Some(renamed) = by_serde(own, "rename") {
        return renamed;
    }
    let name = ident.to_string();
    if by_serde(of_type, "rename_all").as_deref() != Some("kebab-case") {
        return name;
    }
    let mut kebab = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.extend(letter.to_lowercase());
    }
    kebab
}

/// The variants of an enum, each as the source and as files have it.
fn variants(items: &[Item], name: &str) -> Vec<(String, String)> {
    let found = items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == name => Some(item),
        _ => None,
    });
    let found = found.unwrap_or_else(|| panic!("no enum {name}"));
    let variants = found.variants.iter();
    variants
        .map(|variant| {
            let in_files = in_files(&variant.ident, &variant.attrs, &found.attrs);
            (variant.ident.to_string(), in_files)
        })
        .collect()
}

/// The fields of a struct, as files have them.
fn fields(items: &[Item], name: &str) -> Vec<String> {
    let found = items.iter().find_map(|item| match item {
        Item::Struct(item) if item.ident == name => Some(item),
        _ => None,
    });
    let found = found.unwrap_or_else(|| panic!("no struct {name}"));
    let Fields::Named(named) = &found.fields else {
        panic!("{name} has no names")
    };
    let named = named
        .named
        .iter()
        .filter_map(|field| Some((field, field.ident.as_ref()?)));
    named
        .map(|(field, ident)| in_files(ident, &field.attrs, &[]))
        .collect()
}

/// The length of the list `ALL` of a type.
fn listed(items: &[Item], name: &str) -> usize {
    let blocks = items.iter().filter_map(|item| match item {
        Item::Impl(block) if matches!(&*block.self_ty, syn::Type::Path(path) if path.path.is_ident(name)) => {
            Some(block)
        }
        _ => None,
    });
    let mut lists = blocks
        .flat_map(|block| &block.items)
        .filter_map(|item| match item {
            ImplItem::Const(item) if item.ident == "ALL" => match &item.expr {
                Expr::Array(list) => Some(list.elems.len()),
                _ => None,
            },
            _ => None,
        });
    lists.next().unwrap_or_else(|| panic!("no {name}::ALL"))
}

#[test]
fn every_event_has_a_class_in_python_and_a_row_on_its_page() {
    let events = variants(&items("crates/accounting/src/event.rs"), "Event");
    assert!(events.len() >= 20, "{events:?}");
    let classes = text("python/src/event/kinds.rs");
    let stubs = text("python/undertone_dp/_native.pyi");
    let page = text("docs/reference/accountants.md");
    for (event, _) in events {
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
    let source = items("crates/mechanisms/src/optimize/kind.rs");
    let kinds = variants(&source, "Kind");
    assert_eq!(
        kinds.len(),
        listed(&source, "Kind"),
        "`Kind::ALL` holds every kind"
    );
    for (_, name) in kinds {
        assert!(literal.contains(&format!("\"{name}\"")), "{name} in _native.pyi");
        let is_row = |line: &str| line.starts_with("| `") && line.contains(&format!("`{name}`"));
        assert!(page.lines().any(is_row), "{name} in mechanisms.md");
    }
}

#[test]
fn every_key_of_a_service_is_on_the_page_of_federated_tasks() {
    let source = items("crates/coordinator/src/task/service.rs");
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

#[test]
fn names_are_those_of_files_wherever_they_stand() {
    let text = "#[cfg(test)]\nmod tests;\n#[serde(rename_all = \"kebab-case\")]\npub enum Kind { TreeFull, #[serde(rename = \"x\")] Blt }\n\
                pub struct Table { pub a: u8, #[serde(default, rename = \"b\")] pub c: u8 }\nimpl Kind { pub const ALL: [Kind; 1] = [Kind::Blt]; \
                }\n";
    let items = Source::parse(Path::new("a.rs"), text).file.items;
    let variants = variants(&items, "Kind");
    let variants: Vec<(&str, &str)> = variants.iter().map(|(a, b)| (&**a, &**b)).collect();
    assert_eq!(variants, [("TreeFull", "tree-full"), ("Blt", "x")]);
    assert_eq!(fields(&items, "Table"), ["a", "b"]);
    assert_eq!(listed(&items, "Kind"), 1);
}
