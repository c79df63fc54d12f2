//! The names that items use.

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Macro, Path, UseTree, VisRestricted};

use crate::source::{paths_in, plain};

/// A path that is used, such as `crate::a::B`.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub path: Vec<String>,
    pub span: Span,
}

/// A name that a `use` brings.
#[derive(Debug, Clone)]
pub(crate) struct Import {
    pub path: Vec<String>,
    /// The name that it gets, `None` for all names below the path.
    pub name: Option<String>,
    pub span: Span,
}

/// The uses of items: paths, also within macros, and imports.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub paths: Vec<Reference>,
    pub imports: Vec<Import>,
}

/// The uses of items, those of inline modules left out.
pub(crate) fn references<'a>(items: impl IntoIterator<Item = &'a Item>) -> References {
    let mut found = References::default();
    for item in items {
        if !matches!(item, Item::Mod(_)) {
            found.visit_item(item);
        }
    }
    found
}

impl References {
    /// Paths and the paths of imports, together.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&[String], Span)> {
        let paths = self
            .paths
            .iter()
            .map(|reference| (&*reference.path, reference.span));
        let imports = self.imports.iter().map(|import| (&*import.path, import.span));
        paths.chain(imports)
    }

    fn import(&mut self, tree: &UseTree, before: &[String]) {
        let below = |name: &syn::Ident| [before, &[plain(name)]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &below(&path.ident)),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before);
                }
            }
            UseTree::Glob(glob) => self.imports.push(Import {
                path: before.to_vec(),
                name: None,
                span: glob.star_token.spans[0],
            }),
            UseTree::Name(name) if name.ident == "self" => self.imports.push(Import {
                path: before.to_vec(),
                name: before.last().cloned(),
                span: name.ident.span(),
            }),
            UseTree::Name(name) => self.imports.push(Import {
                path: below(&name.ident),
                name: Some(plain(&name.ident)),
                span: name.ident.span(),
            }),
            UseTree::Rename(name) => self.imports.push(Import {
                path: below(&name.ident),
                name: Some(plain(&name.rename)),
                span: name.ident.span(),
            }),
        }
    }
}

impl<'ast> Visit<'ast> for References {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let parts = path.segments.iter().map(|part| plain(&part.ident));
        if let Some(first) = path.segments.first() {
            self.paths.push(Reference {
                path: parts.collect(),
                span: first.ident.span(),
            });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        visit::visit_item_macro(self, item);
    }

    // `pub(in crate::a)` uses nothing of `a`, and an attribute nothing of the crate.
    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

impl References {
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let found = paths_in(tokens).into_iter();
        self.paths
            .extend(found.map(|(path, span)| Reference { path, span }));
    }
}
