//! The modules of a crate, without those that only tests have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::{Expr, ExprLit, Item, Lit, Meta};

use crate::reference::{Import, References, references};
use crate::source::{Source, attributes_of, plain};

/// A module with its children.
#[derive(Debug)]
pub struct Module {
    /// Names from the root of the crate on; none for the root.
    pub name: Vec<String>,
    /// Path of its file.
    pub path: PathBuf,
    /// Modules that it declares, by their names.
    pub children: BTreeMap<String, Module>,
    /// Names of its items that are no modules.
    defines: Vec<String>,
    pub(crate) uses: References,
}

/// The modules of the crate whose root is this file, read from the disk.
///
/// # Panics
/// If a declared module has no file.
#[must_use]
pub fn read_crate(root: &Path) -> Module {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    Module::read(root, Vec::new(), root.parent().unwrap_or(Path::new("")), &read)
}

impl Module {
    /// The module in a file. `below` is the folder of its children.
    pub(crate) fn read(
        path: &Path,
        name: Vec<String>,
        below: &Path,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> Self {
        let text = read(path).unwrap_or_else(|| panic!("{}: no such file", path.display()));
        let source = Source::parse(path, &text);
        Self::of(&source.file.items, path, name, below, read)
    }

    fn of(
        items: &[Item],
        path: &Path,
        name: Vec<String>,
        below: &Path,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> Self {
        let mut children = BTreeMap::new();
        for item in items {
            let Item::Mod(item) = item else { continue };
            let child = plain(&item.ident);
            let name = [&*name, std::slice::from_ref(&child)].concat();
            let module = match &item.content {
                Some((_, items)) => Self::of(items, path, name, &below.join(&child), read),
                None => match stated_path(item) {
                    Some(stated) => {
                        let path = path.parent().unwrap_or(Path::new("")).join(stated);
                        let below = path.parent().map(Path::to_owned).unwrap_or_default();
                        Self::read(&path, name, &below, read)
                    }
                    None => {
                        let (flat, folder) = (below.join(format!("{child}.rs")), below.join(&child));
                        let path = if read(&flat).is_some() {
                            flat
                        } else {
                            folder.join("mod.rs")
                        };
                        Self::read(&path, name, &folder, read)
                    }
                },
            };
            children.insert(child, module);
        }
        Self {
            name,
            path: path.to_owned(),
            children,
            defines: items.iter().filter_map(defined).collect(),
            uses: references(items),
        }
    }

    /// This module and all below it.
    #[must_use]
    pub fn all(&self) -> Vec<&Module> {
        let mut found = vec![self];
        for child in self.children.values() {
            found.extend(child.all());
        }
        found
    }

    fn at(&self, name: &[String]) -> Option<&Module> {
        match name.split_first() {
            None => Some(self),
            Some((first, rest)) => self.children.get(first)?.at(rest),
        }
    }

    /// The module of this crate in which the last name of a path stands, as it is written in the module `from`: names that another
    /// module passes on are followed. `None` for names of other crates and for those that `from` defines itself.
    pub(crate) fn resolve(&self, from: &Module, path: &[String]) -> Option<&Module> {
        self.follow(from, path, 0)
    }

    fn follow<'a>(&'a self, from: &Module, path: &[String], depth: usize) -> Option<&'a Module> {
        // A name that is passed on in a circle is no name.
        const MAX_DEPTH: usize = 16;
        if depth > MAX_DEPTH {
            return None;
        }
        let first = path.first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (self, &path[1..]),
            "self" => (self.at(&from.name)?, &path[1..]),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let kept = from.name.len().checked_sub(ups)?;
                (self.at(&from.name[..kept])?, &path[ups..])
            }
            _ if from.children.contains_key(first) => (self.at(&from.name)?, path),
            _ => return None,
        };
        while let Some(name) = rest.first() {
            if let Some(child) = at.children.get(name) {
                (at, rest) = (child, &rest[1..]);
                continue;
            }
            return Some(self.passed_on(at, name, &rest[1..], depth).unwrap_or(at));
        }
        Some(at)
    }

    /// The module where a name stands that `at` has from elsewhere.
    fn passed_on<'a>(
        &'a self,
        at: &'a Module,
        name: &str,
        rest: &[String],
        depth: usize,
    ) -> Option<&'a Module> {
        let imports = at.uses.imports.iter();
        let target = |import: &Import| {
            let path = [&*import.path, rest].concat();
            self.follow(at, &path, depth + 1)
        };
        if let Some(import) = imports
            .clone()
            .find(|import| import.name.as_deref() == Some(name))
        {
            return target(import);
        }
        let globs = imports.filter(|import| import.name.is_none());
        let of_globs = globs.filter_map(|import| self.follow(at, &import.path, depth + 1));
        of_globs
            .filter(|module| module.name != at.name)
            .find(|module| {
                module.defines.iter().any(|item| item == name)
                    || module.children.contains_key(name)
                    || module
                        .uses
                        .imports
                        .iter()
                        .any(|import| import.name.as_deref() == Some(name))
            })
            .and_then(|module| {
                let path: Vec<String> =
                    [&["crate".to_owned()], &*module.name, &[name.to_owned()], rest].concat();
                self.follow(at, &path, depth + 1)
            })
    }
}

/// The file that `#[path = ".."]` names.
fn stated_path(item: &syn::ItemMod) -> Option<String> {
    item.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text), ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The name of an item that is no module.
fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) if attributes_of_macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(plain(name))
}

/// Returns true for a macro that other modules call by a path. An exported one stands at the root, whatever file it is in.
fn attributes_of_macro(item: &syn::ItemMacro) -> bool {
    !item
        .attrs
        .iter()
        .any(|attribute| attribute.path().is_ident("macro_export"))
        && !attributes_of(&Item::Macro(item.clone())).is_empty()
}
