//! A source file, its product items, and findings in it.

use std::fmt;
use std::path::{Path, PathBuf};

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Block, ImplItem, Item, Meta, Stmt, TraitItem};

/// A parsed source file without the items that only tests have.
#[allow(missing_debug_implementations)] // syntax has no text without a feature
pub struct Source {
    /// Path of the file.
    pub path: PathBuf,
    /// Text of the file, with all that the syntax leaves out.
    pub text: String,
    /// Syntax of the file, without items under `#[cfg(test)]` or `#[cfg(all(test, ..))]`.
    pub file: syn::File,
}

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of the line, from 1.
    pub line: usize,
    /// Words about what stands there.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.what)
    }
}

impl Source {
    /// Parses a text. `path` is the place that findings name.
    ///
    /// # Panics
    /// If the text is no Rust: the compiler refuses it, too.
    #[must_use]
    pub fn parse(path: &Path, text: &str) -> Self {
        let mut file = syn::parse_file(text).unwrap_or_else(|error| {
            panic!("{}:{}: {error}", path.display(), error.span().start().line);
        });
        WithoutTests.visit_file_mut(&mut file);
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            file,
        }
    }

    /// A finding at a place of this file.
    #[must_use]
    pub fn finding(&self, span: Span, what: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line: span.start().line,
            what: what.into(),
        }
    }
}

/// Returns true if an item has this attribute only in tests: `#[cfg(test)]`, or `test` as a part of `all`.
pub(crate) fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => demands_test(list.tokens.clone()),
        _ => false,
    })
}

fn demands_test(condition: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = condition.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(name), TokenTree::Group(inner)] if name == "all" => {
            let inner: Vec<TokenTree> = inner.stream().into_iter().collect();
            inner
                .split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ','))
                .any(|part| demands_test(part.iter().cloned().collect()))
        }
        _ => false,
    }
}

/// Takes away every item that only tests have.
struct WithoutTests;

impl VisitMut for WithoutTests {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| !is_of_tests(attributes_of(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !is_of_tests(attributes_of(item)));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        block.items.retain(|item| {
            !is_of_tests(match item {
                ImplItem::Const(item) => &item.attrs,
                ImplItem::Fn(item) => &item.attrs,
                ImplItem::Type(item) => &item.attrs,
                ImplItem::Macro(item) => &item.attrs,
                _ => &[],
            })
        });
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_item_trait_mut(&mut self, block: &mut syn::ItemTrait) {
        block.items.retain(|item| {
            !is_of_tests(match item {
                TraitItem::Const(item) => &item.attrs,
                TraitItem::Fn(item) => &item.attrs,
                TraitItem::Type(item) => &item.attrs,
                TraitItem::Macro(item) => &item.attrs,
                _ => &[],
            })
        });
        visit_mut::visit_item_trait_mut(self, block);
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        block.stmts.retain(|statement| {
            !is_of_tests(match statement {
                Stmt::Local(local) => &local.attrs,
                Stmt::Item(item) => attributes_of(item),
                Stmt::Macro(call) => &call.attrs,
                Stmt::Expr(..) => &[],
            })
        });
        visit_mut::visit_block_mut(self, block);
    }
}

pub(crate) fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// A name without the mark `r#` of a word that the language has taken.
pub(crate) fn plain(name: &Ident) -> String {
    let text = name.to_string();
    text.strip_prefix("r#")
        .map_or_else(|| text.clone(), str::to_owned)
}

/// Every path in the tokens of a macro, such as `std::fs::read`, with the place where it starts. A lone name is a path of one part.
pub(crate) fn paths_in(tokens: TokenStream) -> Vec<(Vec<String>, Span)> {
    let mut found: Vec<(Vec<String>, Span)> = Vec::new();
    let (mut colons, mut joins) = (0, false);
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                match found.last_mut().filter(|_| joins && colons == 2) {
                    Some((path, _)) => path.push(plain(&name)),
                    None => found.push((vec![plain(&name)], name.span())),
                }
                (colons, joins) = (0, true);
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                found.extend(paths_in(group.stream()));
                (colons, joins) = (0, false);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => (colons, joins) = (0, false),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::source;

    #[test]
    fn items_of_tests_are_left_out_and_what_follows_them_is_read() {
        let source = source(
            "#[cfg(test)]\nmod tests;\n#[cfg(all(test, unix))]\nfn of_tests() {}\n#[cfg(unix)]\nfn of_unix() {}\n#[cfg(any(test, \
             feature = \"x\"))]\nfn of_both() {}\n#[cfg(not(test))]\nfn of_product() {}\nimpl A { #[cfg(test)] fn of_tests() {} fn b() { \
             #[cfg(test)] let x = 1; } }\n",
        );
        let names: Vec<String> = source
            .file
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Fn(item) => Some(item.sig.ident.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["of_unix", "of_both", "of_product"]);
        let Some(Item::Impl(block)) = source.file.items.last() else {
            panic!("an impl")
        };
        let [ImplItem::Fn(method)] = block.items.as_slice() else {
            panic!("one method")
        };
        assert!(method.block.stmts.is_empty());
    }

    #[test]
    fn paths_of_a_macro_are_cut_where_they_end() {
        let tokens: TokenStream = "a::b::c(d, &mut e::f) + 'x' g".parse().unwrap();
        let paths: Vec<String> = paths_in(tokens)
            .into_iter()
            .map(|(path, _)| path.join("::"))
            .collect();
        assert_eq!(paths, ["a::b::c", "d", "mut", "e::f", "g"]);
    }
}
