//! Calls that only certain files make.

use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprMethodCall, Macro};

use crate::source::{Finding, Source, paths_in};

/// Methods that draw or skip the noise of a round.
const NOISE: [&str; 3] = ["privatize", "privatize_bits", "privatize_residues"];

/// The calls that draw noise in a file, or pass over a round of it. `NonPrivate` draws none.
#[must_use]
pub fn noise_outside_of_the_head(source: &Source) -> Vec<Finding> {
    struct Calls<'a>(&'a Source, Vec<Finding>);
    impl<'ast> Visit<'ast> for Calls<'_> {
        fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
            let name = call.method.to_string();
            let skips = name == "skip" && last_name(&call.receiver).as_deref() == Some("noise");
            let is_none = matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident("NonPrivate"));
            if skips || NOISE.contains(&name.as_str()) && !is_none {
                self.1
                    .push(self.0.finding(call.method.span(), format!(".{name}()")));
            }
            visit::visit_expr_method_call(self, call);
        }

        fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
            if let Some(last) = path.path.segments.last()
                && path.path.segments.len() > 1
                && NOISE.contains(&last.ident.to_string().as_str())
            {
                self.1
                    .push(self.0.finding(last.ident.span(), format!("::{}", last.ident)));
            }
            visit::visit_expr_path(self, path);
        }

        fn visit_macro(&mut self, call: &'ast Macro) {
            let mut names = paths_in(call.tokens.clone()).into_iter().peekable();
            while let Some((path, span)) = names.next() {
                let last = path.last().map_or("", String::as_str);
                if NOISE.contains(&last) {
                    self.1.push(self.0.finding(span, format!("{last} in a macro")));
                }
                // `NonPrivate.privatize(..)` draws nothing.
                if last == "NonPrivate" {
                    names.next();
                }
            }
        }
    }
    let mut calls = Calls(source, Vec::new());
    calls.visit_file(&source.file);
    calls.1
}

/// The places where a privacy error can be planted: calls of `planted`.
#[must_use]
pub fn planted_errors(source: &Source) -> Vec<Finding> {
    struct Calls<'a>(&'a Source, Vec<Finding>);
    impl<'ast> Visit<'ast> for Calls<'_> {
        fn visit_expr_call(&mut self, call: &'ast ExprCall) {
            if let Expr::Path(path) = &*call.func
                && let Some(last) = path.path.segments.last()
                && last.ident == "planted"
            {
                self.1.push(self.0.finding(last.ident.span(), "planted()"));
            }
            visit::visit_expr_call(self, call);
        }

        fn visit_macro(&mut self, call: &'ast Macro) {
            for (path, span) in paths_in(call.tokens.clone()) {
                if path.last().is_some_and(|last| last == "planted") {
                    self.1.push(self.0.finding(span, "planted() in a macro"));
                }
            }
        }
    }
    let mut calls = Calls(source, Vec::new());
    calls.visit_file(&source.file);
    calls.1
}

/// The name of a variable, or of the field that an expression ends in.
fn last_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => Some(name.to_string()),
            syn::Member::Unnamed(_) => None,
        },
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        Expr::Reference(reference) => last_name(&reference.expr),
        Expr::Paren(inner) => last_name(&inner.expr),
        _ => None,
    }
}

/// The places where a file prints, opens the standard output, or gives a log one of the streams.
#[must_use]
pub fn printing(source: &Source) -> Vec<Finding> {
    const MACROS: [&str; 5] = ["println", "eprintln", "print", "eprint", "dbg"];
    const STREAM: &str = "stdout";
    const STREAMS: [&str; 2] = [STREAM, "stderr"];
    struct Calls<'a>(&'a Source, Vec<Finding>);
    impl<'ast> Visit<'ast> for Calls<'_> {
        fn visit_macro(&mut self, call: &'ast Macro) {
            let inside = paths_in(call.tokens.clone());
            let outside = call.path.segments.last();
            let outside = outside.map(|part| (vec![part.ident.to_string()], part.ident.span()));
            for (path, span) in outside.into_iter().chain(inside) {
                let last = path.last().map_or("", String::as_str);
                let opens = path.len() > 1 && last == STREAM;
                if opens || path.len() == 1 && MACROS.contains(&last) {
                    self.1.push(self.0.finding(span, path.join("::")));
                }
            }
            visit::visit_macro(self, call);
        }

        fn visit_expr_call(&mut self, call: &'ast ExprCall) {
            if let Expr::Path(path) = &*call.func
                && let Some(last) = path.path.segments.last()
                && last.ident == STREAM
            {
                self.1.push(self.0.finding(last.ident.span(), "stdout()"));
            }
            visit::visit_expr_call(self, call);
        }

        // A logger that writes to a stream by itself.
        fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
            let writes = call.method == "with_writer"
                && call.args.iter().any(|argument| match argument {
                    Expr::Path(path) => path
                        .path
                        .segments
                        .last()
                        .is_some_and(|last| STREAMS.contains(&last.ident.to_string().as_str())),
                    _ => false,
                });
            if writes {
                self.1.push(self.0.finding(call.method.span(), ".with_writer()"));
            }
            visit::visit_expr_method_call(self, call);
        }
    }
    let mut calls = Calls(source, Vec::new());
    calls.visit_file(&source.file);
    calls.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TESTS, lines, source};

    #[test]
    fn noise_below_the_tests_of_a_file_is_found() {
        let text = format!(
            "{TESTS}fn f() {{ noise.privatize(0, sum); }}\nfn g() {{ self.noise.skip(3); }}\nfn h() {{ Mechanism::privatize_bits(m, 0); \
             }}\nfn i() {{ assert!(mechanism.privatize_residues(0).is_ok()); }}\n"
        );
        assert_eq!(lines(&noise_outside_of_the_head(&source(&text))), [3, 4, 5, 6]);
    }

    #[test]
    fn releases_without_noise_and_other_skips_are_right() {
        let text = "fn f() { NonPrivate.privatize(0, sum); rows.skip(1); privatized(0); }\n#[cfg(test)]\nmod tests { fn g() { \
                    noise.privatize(0); } }\nfn h() { assert_eq!(NonPrivate.privatize(0, a), b); }\n";
        assert!(noise_outside_of_the_head(&source(text)).is_empty());
    }

    #[test]
    fn planted_errors_below_the_tests_of_a_file_are_found() {
        let text = format!(
            "{TESTS}fn f() {{ if fault::planted(\"M01\") {{}} }}\nfn g() {{ assert!(planted(\"M02\")); }}\n"
        );
        assert_eq!(lines(&planted_errors(&source(&text))), [3, 4]);
        assert!(
            planted_errors(&source("fn f(planted: bool) -> bool { planted && is_planted() }")).is_empty()
        );
    }

    #[test]
    fn printing_below_the_tests_of_a_file_is_found() {
        let text = format!(
            "{TESTS}fn f() {{ println!(\"a\"); }}\nfn g() {{ std::io::stdout().lock(); }}\nfn h() {{ vec![std::io::stdout()]; }}\nfn i() \
             {{ log().with_writer(std::io::stderr) }}\n"
        );
        assert_eq!(lines(&printing(&source(&text))), [3, 4, 5, 6]);
        assert!(
            printing(&source(
                "fn f(stdout: &[u8]) { writeln!(out, \"println!\"); output.stdout; }"
            ))
            .is_empty()
        );
    }
}
