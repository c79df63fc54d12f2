//! Errors that say what they expect.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Span, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, ExprLit, FnArg, Lit, Pat, Token};

use crate::source::{Finding, Source};

/// Texts that say what an error did not expect: "expected no value" leaves a reader with nothing to do. `crates` are the sources of each
/// crate.
///
/// A text is judged in an argument named `expected` of a function or a closure, in a field `expected`, and in a variable of that name. A
/// name means the function of its own file if there is one, then that of its crate; methods and functions of types are looked for in all.
#[must_use]
pub fn empty_expectations(crates: &[Vec<Source>]) -> Vec<Finding> {
    let mut methods = Places::new();
    let mut functions = Vec::new();
    for sources in crates {
        let mut of_crate = Places::new();
        let mut of_files = Vec::new();
        for source in sources {
            let mut takers = Takers::default();
            takers.visit_file(&source.file);
            join(&mut methods, &takers.methods);
            join(&mut of_crate, &takers.functions);
            of_files.push(takers.functions);
        }
        functions.push((of_crate, of_files));
    }
    let mut found = Vec::new();
    for (sources, (of_crate, of_files)) in crates.iter().zip(&functions) {
        for (source, of_file) in sources.iter().zip(of_files) {
            let mut judge = Judge {
                source,
                functions: [of_file, of_crate],
                methods: &methods,
                found: &mut found,
            };
            judge.visit_file(&source.file);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The places of an argument `expected`, the receiver not counted, by the names of functions. A function that does not take it has none.
type Places = BTreeMap<String, BTreeSet<usize>>;

fn join(all: &mut Places, more: &Places) {
    for (name, places) in more {
        all.entry(name.clone()).or_default().extend(places);
    }
}

/// The functions of a file.
#[derive(Default)]
struct Takers {
    /// Functions and closures, by their names.
    functions: Places,
    /// Methods by their names, and functions of types as `Type::name`.
    methods: Places,
    /// The type of the block that is visited.
    of: Option<String>,
}

fn is_expected(pattern: &Pat) -> bool {
    match pattern {
        Pat::Ident(name) => name.ident == "expected",
        Pat::Type(typed) => is_expected(&typed.pat),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Takers {
    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let name = match &*block.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|part| part.ident.to_string()),
            _ => None,
        };
        let outer = std::mem::replace(&mut self.of, name);
        visit::visit_item_impl(self, block);
        self.of = outer;
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(&*typed.pat),
            FnArg::Receiver(_) => None,
        });
        let place = typed.into_iter().position(is_expected);
        let name = signature.ident.to_string();
        let entry = match &self.of {
            None => self.functions.entry(name),
            Some(_) if signature.receiver().is_some() => self.methods.entry(name),
            Some(of) => self.methods.entry(format!("{of}::{name}")),
        };
        entry.or_default().extend(place);
        visit::visit_signature(self, signature);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        // A function within another one belongs to no type.
        let outer = self.of.take();
        visit::visit_block(self, block);
        self.of = outer;
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let Pat::Ident(name) = &local.pat
            && let Some(init) = &local.init
            && let Expr::Closure(closure) = &*init.expr
        {
            let place = closure.inputs.iter().position(is_expected);
            self.functions
                .entry(name.ident.to_string())
                .or_default()
                .extend(place);
        }
        visit::visit_local(self, local);
    }
}

struct Judge<'a> {
    source: &'a Source,
    /// The functions of the file, and those of its crate.
    functions: [&'a Places; 2],
    methods: &'a Places,
    found: &'a mut Vec<Finding>,
}

impl Judge<'_> {
    fn arguments(&mut self, places: Option<&BTreeSet<usize>>, arguments: &Punctuated<Expr, Token![,]>) {
        for place in places.into_iter().flatten() {
            if let Some(argument) = arguments.get(*place) {
                self.text(argument);
            }
        }
    }

    fn text(&mut self, expression: &Expr) {
        for (text, span) in texts(expression) {
            let start = text.trim_start();
            let bound = [
                "no more than ",
                "no fewer than ",
                "no less than ",
                "no later than ",
                "no earlier than ",
            ];
            if start.starts_with("no ") && !bound.iter().any(|bound| start.starts_with(bound)) {
                self.found
                    .push(self.source.finding(span, format!("expected {text:?}")));
            }
        }
    }
}

/// The texts that an expression may be: literals, and the first one of `format!`, behind conditions, calls and references.
fn texts(expression: &Expr) -> Vec<(String, Span)> {
    match expression {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text), ..
        }) => vec![(text.value(), text.span())],
        Expr::Reference(inner) => texts(&inner.expr),
        Expr::Paren(inner) => texts(&inner.expr),
        Expr::MethodCall(call) => texts(&call.receiver),
        Expr::Macro(call) if call.mac.path.is_ident("format") => {
            match call.mac.tokens.clone().into_iter().next() {
                Some(TokenTree::Literal(literal)) => match Lit::new(literal) {
                    Lit::Str(text) => vec![(text.value(), text.span())],
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            }
        }
        Expr::If(choice) => {
            let mut found = last_of(&choice.then_branch);
            found.extend(choice.else_branch.iter().flat_map(|(_, other)| texts(other)));
            found
        }
        Expr::Block(block) => last_of(&block.block),
        Expr::Match(choice) => choice.arms.iter().flat_map(|arm| texts(&arm.body)).collect(),
        _ => Vec::new(),
    }
}

fn last_of(block: &syn::Block) -> Vec<(String, Span)> {
    match block.stmts.last() {
        Some(syn::Stmt::Expr(expression, None)) => texts(expression),
        _ => Vec::new(),
    }
}

impl<'ast> Visit<'ast> for Judge<'_> {
    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(path) = &*call.func {
            let parts: Vec<String> = path
                .path
                .segments
                .iter()
                .map(|part| part.ident.to_string())
                .collect();
            let places = match parts.as_slice() {
                [.., of, name] if of.starts_with(char::is_uppercase) => {
                    self.methods.get(&format!("{of}::{name}"))
                }
                [.., name] => self.functions.iter().find_map(|functions| functions.get(name)),
                [] => None,
            };
            self.arguments(places, &call.args);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.arguments(self.methods.get(&call.method.to_string()), &call.args);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if matches!(&field.member, syn::Member::Named(name) if name == "expected") {
            self.text(&field.expr);
        }
        visit::visit_field_value(self, field);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if is_expected(&local.pat)
            && let Some(init) = &local.init
        {
            self.text(&init.expr);
        }
        visit::visit_local(self, local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TESTS, lines, source};

    #[test]
    fn an_empty_expectation_below_the_tests_of_a_file_is_found() {
        let text = format!(
            "{TESTS}fn wrong(key: &str, expected: &str) {{}}\nfn f() {{ wrong(\"a\", \"no value\"); }}\nfn g() {{ let expected = if x {{ \
             \"no rows\" }} else {{ \"rows\" }}; }}\nfn h() -> E {{ E {{ expected: format!(\"no {{x}}\") }} }}\nfn i() {{ let bad = \
             |expected: &str| 1; bad(\"no user\"); }}\n"
        );
        assert_eq!(lines(&empty_expectations(&[vec![source(&text)]])), [4, 5, 6, 7]);
    }

    #[test]
    fn bounds_and_other_arguments_are_right() {
        let text = "fn wrong(key: &str, expected: &str) {}\nfn f() { wrong(\"no key\", \"no more than 3 rows\"); wrong(\"a\", \"a number\"); \
                    }\nfn g(got: &str) {}\nfn h() { g(\"no text\"); }\n";
        // Another file has a function of that name, and another type a constructor.
        let other = "fn wrong(key: &str, got: &str) {}\nfn f() { wrong(\"a\", \"no value\"); E::new(\"no value\"); }\nimpl F { fn \
                     new(expected: &str) {} }\nimpl E { fn new(got: &str) {} }\n";
        assert!(empty_expectations(&[vec![source(text), source(other)]]).is_empty());
    }
}
