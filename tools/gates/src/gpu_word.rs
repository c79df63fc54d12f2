//! One word for a GPU: a device is a phone or computer of a person that takes part.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Macro, MetaList};

use crate::source::{Finding, Source, plain};

/// The identifiers of a file that contain `device`, in any case, and are not among `known`.
#[must_use]
pub fn devices(source: &Source, known: &[&str]) -> Vec<Finding> {
    struct Names<'a>(&'a Source, &'a [&'a str], Vec<Finding>);
    impl Names<'_> {
        fn judge(&mut self, name: &Ident) {
            let text = plain(name);
            if text.to_lowercase().contains("device") && !self.1.contains(&text.as_str()) {
                self.2.push(self.0.finding(name.span(), text));
            }
        }

        fn judge_all(&mut self, tokens: TokenStream) {
            for token in tokens {
                match token {
                    TokenTree::Ident(name) => self.judge(&name),
                    TokenTree::Group(group) => self.judge_all(group.stream()),
                    TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                }
            }
        }
    }
    impl<'ast> Visit<'ast> for Names<'_> {
        fn visit_ident(&mut self, name: &'ast Ident) {
            self.judge(name);
        }

        fn visit_macro(&mut self, call: &'ast Macro) {
            self.judge_all(call.tokens.clone());
            visit::visit_macro(self, call);
        }

        fn visit_meta_list(&mut self, list: &'ast MetaList) {
            self.judge_all(list.tokens.clone());
            visit::visit_meta_list(self, list);
        }
    }
    let mut names = Names(source, known, Vec::new());
    names.visit_file(&source.file);
    names.2.sort();
    names.2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TESTS, lines, source};

    #[test]
    fn a_device_below_the_tests_of_a_file_is_found() {
        let text = format!(
            "{TESTS}struct DeviceSum;\nfn add_on_device() {{}}\nfn f(sum: Sum) {{ sum.device(); }}\nfn g(at: usize) {{ assert!(at < \
             DEVICES[0].len()); }}\n#[pyo3(signature = (dl_device))]\nfn h(a: &device::A) {{}}\n"
        );
        let found = devices(&source(&text), &[]);
        assert_eq!(lines(&found), [3, 4, 5, 6, 7, 8]);
        assert_eq!(found[0].to_string(), "src/a.rs:3: DeviceSum");
    }

    #[test]
    fn words_and_known_names_are_right() {
        let text = "//! A device takes part.\nunsafe impl DeviceRepr for Call {}\nconst NAME: &str = \"device\";\n#[serde(alias = \
                    \"summed_on_device\")]\nstruct GpuSum;\n#[cfg(test)]\nmod tests { fn a_device() {} }\n";
        assert!(devices(&source(text), &["DeviceRepr"]).is_empty());
        assert_eq!(lines(&devices(&source(text), &["Device"])), [2]);
    }
}
