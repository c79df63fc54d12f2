//! Documents: their length, the numbers of invariants, and the functions that links name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use crate::source::{Finding, Source};

/// Max number of words of `README.md`.
pub const README_WORDS: usize = 450;

/// Max number of words of `ARCHITECTURE.md`.
pub const ARCHITECTURE_WORDS: usize = 2000;

/// Max number of lines that describe the newest version in `CHANGELOG.md`.
pub const CHANGELOG_LINES: usize = 60;

/// Numbers of invariants that no document has.
const UNUSED_INVARIANTS: [usize; 14] = [82, 83, 84, 85, 86, 87, 88, 89, 107, 108, 109, 114, 118, 119];

/// A page in Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Path of the page.
    pub path: PathBuf,
    /// Text of the page.
    pub text: String,
}

impl Page {
    fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            what: what.into(),
        }
    }

    /// The finding that the page has more words than this, if it has. A word has a letter or a digit and stands between white space.
    #[must_use]
    pub fn too_many_words(&self, max: usize) -> Option<Finding> {
        let is_word = |word: &&str| word.contains(char::is_alphanumeric);
        let words = self.text.split_whitespace().filter(is_word).count();
        (words > max).then(|| self.finding(1, format!("{words} words; expected at most {max}")))
    }

    /// The finding that the section of the newest version has more lines than this, if it has. Changes that are in no version yet are
    /// no section of a version.
    #[must_use]
    pub fn too_long_a_version(&self, max: usize) -> Option<Finding> {
        let is_version = |line: &str| line.starts_with("## [") && !line.starts_with("## [Unreleased]");
        let start = self.text.lines().position(is_version)?;
        let section = self.text.lines().skip(start + 1);
        let lines = 1 + section.take_while(|line| !line.starts_with("## ")).count();
        (lines > max).then(|| self.finding(start + 1, format!("{lines} lines; expected at most {max}")))
    }

    /// The links of the page to Rust sources, each with its line, its text and its target.
    fn links(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        (1..).zip(self.text.lines()).flat_map(|(line, text)| {
            text.match_indices("](").filter_map(move |(at, _)| {
                let target = text[at + 2..].split(')').next()?;
                let name = text[..at].rsplit('[').next()?;
                target.ends_with(".rs").then_some((line, name, target))
            })
        })
    }
}

/// The numbers of invariants that stand twice, are missing, or are those that no document has.
///
/// The item of an invariant begins with its number in bold: `- **12.** Printed epsilons ..`.
#[must_use]
pub fn misplaced_invariants(pages: &[Page]) -> Vec<Finding> {
    let mut places: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
    for page in pages {
        for (line, text) in (1..).zip(page.text.lines()) {
            let number = text.strip_prefix("- **").and_then(|rest| rest.split_once(".**"));
            if let Some(number) = number.and_then(|(number, _)| number.parse().ok()) {
                let place = page.finding(line, format!("invariant {number}"));
                places.entry(number).or_default().push(place);
            }
        }
    }
    let mut found = Vec::new();
    for (number, here) in &places {
        for place in here.iter().skip(1) {
            let what = format!("invariant {number} stands in {}, too", here[0].path.display());
            found.push(Finding {
                what,
                ..place.clone()
            });
        }
        if UNUSED_INVARIANTS.contains(number) {
            let what = format!("no invariant has the number {number}; take the next one after the last");
            found.push(Finding {
                what,
                ..here[0].clone()
            });
        }
    }
    let last = places.keys().next_back().copied().unwrap_or(0);
    let missing =
        (1..=last).filter(|number| !places.contains_key(number) && !UNUSED_INVARIANTS.contains(number));
    found.extend(missing.map(|number| Finding {
        path: PathBuf::from("ARCHITECTURE.md"),
        line: 1,
        what: format!("invariant {number} stands in no document"),
    }));
    found
}

/// The links of a page to Rust sources that name no function or type of the file: `` [`Type::function`](path.rs) ``. `read` gives the
/// text of a file by its path, which is relative to the folder of the page.
pub fn unknown_names(page: &Page, read: &dyn Fn(&Path) -> Option<String>) -> Vec<Finding> {
    let folder = page.path.parent().unwrap_or(Path::new(""));
    let judge = |(line, name, target): (usize, &str, &str)| {
        let Some(text) = read(&folder.join(target)) else {
            return Some(page.finding(line, format!("no file {target}")));
        };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else {
            let what = format!(
                "expected the name of a function as the text of the link to {target}, got \"{name}\""
            );
            return Some(page.finding(line, what));
        };
        let mut names = Names::default();
        names.visit_file(&Source::parse(Path::new(target), &text).file);
        (!names.known.iter().any(|known| known == name))
            .then(|| page.finding(line, format!("{target} has no `{name}`")))
    };
    page.links().filter_map(judge).collect()
}

/// The number of links of a page to Rust sources.
#[must_use]
pub fn links_to_sources(page: &Page) -> usize {
    page.links().count()
}

/// The functions and types of a file, functions of a type or trait behind its name.
#[derive(Default)]
struct Names {
    owner: Option<String>,
    known: Vec<String>,
}

impl Names {
    fn add(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        self.known.push(match &self.owner {
            Some(owner) => format!("{owner}::{name}"),
            None => name,
        });
    }

    fn within(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = before;
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig.ident);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.ident);
        let owner = Some(item.ident.to_string());
        self.within(owner, |names| visit::visit_item_trait(names, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|part| part.ident.to_string()),
            _ => None,
        };
        self.within(owner, |names| visit::visit_item_impl(names, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig.ident);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.add(&item.sig.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TESTS;

    fn page(path: &str, text: &str) -> Page {
        Page {
            path: PathBuf::from(path),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_page_may_have_as_many_words_as_its_limit() {
        let text = "# One\n\ntwo\tthree\n- four";
        assert_eq!(page("a.md", text).too_many_words(4), None, "marks are no words");
        let finding = page("a.md", text).too_many_words(3).expect("a finding");
        assert_eq!(finding.to_string(), "a.md:1: 4 words; expected at most 3");
    }

    #[test]
    fn the_newest_version_alone_has_a_limit() {
        let text =
            "# Changelog\n\n## [Unreleased]\n\n- a\n- b\n\n## [2] - D\n\n- c\n\n## [1] - D\n\n- d\n- e\n";
        assert_eq!(page("a.md", text).too_long_a_version(4), None);
        let finding = page("a.md", text).too_long_a_version(3).expect("a finding");
        assert_eq!(finding.to_string(), "a.md:8: 4 lines; expected at most 3");
        assert_eq!(page("a.md", "# Changelog\n").too_long_a_version(0), None);
    }

    #[test]
    fn the_number_of_an_invariant_stands_once() {
        let one = page(
            "a/README.md",
            "- **1.** First.\n- **2.** See **3.** and invariant 3.\n",
        );
        let two = page(
            "b/README.md",
            "- **3.** Third.\n1. **2.** is no item of an invariant\n",
        );
        assert_eq!(misplaced_invariants(&[one.clone(), two.clone()]), []);
        let again = page(
            "c/README.md",
            "# C\n\n- **2.** Again.\n- **5.** Fifth.\n- **83.** Unused.\n",
        );
        let found = misplaced_invariants(&[one, two, again]);
        let shown: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert_eq!(shown[0], "c/README.md:3: invariant 2 stands in a/README.md, too");
        assert_eq!(
            shown[1],
            "c/README.md:5: no invariant has the number 83; take the next one after the last"
        );
        assert_eq!(shown[2], "ARCHITECTURE.md:1: invariant 4 stands in no document");
        assert_eq!(shown.len(), 3 + (6..82).count());
    }

    #[test]
    fn a_link_names_a_function_of_its_file() {
        let source = format!(
            "{TESTS}impl<'a> Sum<'a> {{ fn add(self) {{ self.take() }} }}\ntrait Sink {{ fn accept(&self); }}\n\
             fn gather() {{}}\n// fn noted()\nstruct Sum<'a>(&'a str);\n#[cfg(test)]\nfn of_tests() {{}}\n"
        );
        let read = |path: &Path| (path == Path::new("docs/../src/a.rs")).then(|| source.clone());
        let check = |link: &str| {
            let page = page("docs/tour.md", &format!("# Tour\n\n1. It is {link}.\n"));
            let found = unknown_names(&page, &read);
            assert!(found.iter().all(|finding| finding.line == 3));
            found.into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        for right in ["Sum::add", "Sink::accept", "Sink", "gather", "Sum"] {
            let right = format!("[`{right}`](../src/a.rs), beside [a page](b.md)");
            assert_eq!(check(&right), [""; 0], "{right}");
        }
        for wrong in ["Sum::take", "add", "noted", "of_tests", "Sink::gather"] {
            let found = check(&format!("[`{wrong}`](../src/a.rs)"));
            assert_eq!(found, [format!("../src/a.rs has no `{wrong}`")]);
        }
        assert_eq!(check("[`gather`](../src/b.rs)"), ["no file ../src/b.rs"]);
        assert!(check("[the sum](../src/a.rs)")[0].contains("got \"the sum\""));
        assert_eq!(
            check("`gather` and [`Sum::add`](../src/a.rs), [`add`](../src/a.rs)").len(),
            1
        );
    }
}
