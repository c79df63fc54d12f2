//! The browser of the person at the machine.

use std::path::Path;

use crate::output::Output;

/// Opens a page of this machine in the browser. Where there is none, a warning names the page.
pub(crate) fn open(page: &Path, output: &Output) {
    // A path that begins with a letter of options would be taken for one.
    let page = std::path::absolute(page).unwrap_or_else(|_| page.to_owned());
    if let Err(error) = open::that_detached(&page) {
        output.warn(&format!(
            "no browser could be started ({error}); open {} in one",
            page.display()
        ));
    }
}
