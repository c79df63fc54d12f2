//! Long functions of the numerical crates, whose loops are argued.

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Signature};

use crate::source::{Finding, Source};

/// Max number of lines of a function whose loops need no formula.
const MOST: usize = 80;

/// The outermost loops of functions of more than 80 lines that have no formula. The head of a function and its last brace count as lines.
///
/// A loop is `for`, `while` or `loop`. It is outermost if no other loop of its function is around it; a closure belongs to the function
/// that it stands in. The formula stands in the comments right above the loop, or in those that its body starts with. It is a comment
/// with an equals sign, or one of `+=`, `-=`, `<=` and `>=`, that stands between spaces and has a term at either side. The gate cannot tell
/// if a formula is true, nor if the head of the function says what its letters are.
#[must_use]
pub fn loops_without_formulas(source: &Source) -> Vec<Finding> {
    let mut functions = Functions {
        source,
        found: Vec::new(),
    };
    functions.visit_file(&source.file);
    functions.found
}

/// The functions of a file, those inside of functions as well.
struct Functions<'a> {
    source: &'a Source,
    found: Vec<Finding>,
}

impl Functions<'_> {
    fn judge(&mut self, signature: &Signature, block: &Block) {
        let (start, end) = (signature.fn_token.span, block.brace_token.span.close());
        let lines = end.start().line - start.start().line + 1;
        if lines <= MOST {
            return;
        }
        let mut loops = Outermost(Vec::new());
        loops.visit_block(block);
        for (start, body) in loops.0 {
            let comments = above(&self.source.text, start)
                .into_iter()
                .chain(below(&self.source.text, body));
            if !comments.into_iter().any(is_formula) {
                let what = format!(
                    "a loop of `{}`, of {lines} lines, has no formula",
                    signature.ident
                );
                self.found.push(self.source.finding(start, what));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.judge(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.judge(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.judge(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// The loops of a function that no other loop is around: each with its start and that of its body. Attributes and labels belong to a loop.
struct Outermost(Vec<(Span, Span)>);

impl Outermost {
    fn keep(&mut self, attributes: &[Attribute], label: Option<&syn::Label>, word: Span, body: &Block) {
        let start = label.map_or(word, |label| label.name.apostrophe);
        let start = attributes.first().map_or(start, |first| first.pound_token.span);
        self.0.push((start, body.brace_token.span.open()));
    }
}

impl<'ast> Visit<'ast> for Outermost {
    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::ForLoop(one) => {
                self.keep(&one.attrs, one.label.as_ref(), one.for_token.span, &one.body);
            }
            Expr::While(one) => self.keep(&one.attrs, one.label.as_ref(), one.while_token.span, &one.body),
            Expr::Loop(one) => self.keep(&one.attrs, one.label.as_ref(), one.loop_token.span, &one.body),
            _ => visit::visit_expr(self, expression),
        }
    }

    // A function inside of the function is judged alone.
    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

/// The comments right above a place, from the nearest one.
fn above(text: &str, place: Span) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().take(place.start().line - 1).collect();
    lines.into_iter().rev().map_while(comment).collect()
}

/// The comments that a body starts with, the one behind its brace included.
fn below(text: &str, brace: Span) -> Vec<&str> {
    let place = brace.start();
    let mut lines = text.lines().skip(place.line - 1);
    let line = lines.next().unwrap_or_default();
    let behind = line.char_indices().nth(place.column + 1);
    let behind = behind.map_or("", |(at, _)| &line[at..]);
    let rest = lines.map_while(comment);
    comment(behind).into_iter().chain(rest).collect()
}

/// The text of a line that is a comment and nothing else.
fn comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//")
}

/// Returns true for a text with a relation between two terms.
fn is_formula(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_term = |word: &str| word.contains(char::is_alphanumeric);
    words.windows(3).any(|words| {
        let relates = ["=", "+=", "-=", "<=", ">="].contains(&words[1]);
        relates && is_term(words[0]) && is_term(words[2])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TESTS, lines, source};

    /// A function of 83 lines that starts and ends with these texts.
    fn long(start: &str, end: &str) -> String {
        format!(
            "{TESTS}fn f() {{\n{start}\n{}{end}\n}}\n",
            "    step();\n".repeat(79)
        )
    }

    #[test]
    fn a_bare_loop_of_a_long_function_below_the_tests_of_a_file_is_found() {
        let found = |loop_: &str| lines(&loops_without_formulas(&source(&long("", loop_))));
        assert_eq!(found("for x in y { while a {} }"), [84]);
        assert_eq!(found("let z = 'all: loop { break; };"), [84]);
        assert_eq!(found("call(|| for x in y {});"), [84]);
        // Comments that are no formula, one that is cut off by code, and one of an inner loop.
        for comment in [
            "// The rows go to their users.",
            "// x == y",
            "// The sign `=` stands here.",
            "// x = y\nstep();",
        ] {
            let last = 84 + comment.lines().count();
            assert_eq!(found(&format!("{comment}\nwhile a {{}}")), [last], "{comment}");
        }
        assert_eq!(found("for x in y {\nstep();\n// x = y\nfor x in y {} }"), [84]);
        let method = format!("impl A {{\n{}}}\n", long("loop {}", "").replace(TESTS, ""));
        assert_eq!(lines(&loops_without_formulas(&source(&method))), [3]);
    }

    #[test]
    fn argued_loops_and_those_of_short_functions_are_right() {
        for loop_ in [
            "// dW += X^T dY, of a chunk.\n// The rows are those of X.\nfor x in y { for z in x {} }",
            "for x in y { // s_t = a s_{t-1} + x_t\nstep(); }",
            "while a {\n// The bound: |x| <= c\nstep(); }",
            "// y = A x\n#[allow(clippy::all)]\n'rows: for x in y {}",
        ] {
            assert!(
                loops_without_formulas(&source(&long("", loop_))).is_empty(),
                "{loop_}"
            );
        }
        let short = "fn f() { for x in y {} }\n";
        assert!(loops_without_formulas(&source(short)).is_empty());
        // The loop belongs to the function inside of the long one.
        assert!(loops_without_formulas(&source(&long(short, ""))).is_empty());
    }
}
