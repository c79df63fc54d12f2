//! The name of a test is a claim, and no claim has fewer than three words. A test that is ignored is slow, or its module says who
//! starts it.

use super::habits::files;
use super::read;

/// Words of the shortest claim: a subject, a verb and what is said.
const MIN_WORDS: usize = 3;

/// `true` for a line that makes the function below it a test, such as `#[test]` or `#[tokio::test(flavor = "multi_thread")]`.
fn marks_a_test(line: &str) -> bool {
    let Some(attribute) = line.trim_start().strip_prefix("#[") else {
        return false;
    };
    let path = attribute.split(['(', ']']).next().unwrap_or_default();
    let name = path.rsplit("::").next().unwrap_or_default();
    ["test", "rstest", "test_case"].contains(&name)
}

/// The names of a file's test functions, each with its line. A macro names its tests where it is called, so they are left out.
fn tests(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_marked = false;
    for (number, line) in (1..).zip(text.lines()) {
        is_marked |= marks_a_test(line);
        let is_code = !line.trim_start().starts_with(['#', '/']);
        let function = line
            .split_once("fn ")
            .map(|(_, rest)| rest)
            .filter(|_| is_marked && is_code);
        if let Some(rest) = function {
            is_marked = false;
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            if !name.starts_with('$') {
                found.push((number, name));
            }
        }
    }
    found
}

/// Modules whose tests `.ci/test` passes over: those that a person starts, and those that another test starts.
const NOT_IN_CI: [&str; 2] = ["by_hand", "children"];

/// The lines of ignored tests that are neither slow nor in a module that says who starts them.
fn unexplained(text: &str) -> Vec<usize> {
    let mut module = "";
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(name) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            module = name;
        }
        let is_ignored = line.starts_with("#[ignore");
        if is_ignored && line != "#[ignore = \"slow\"]" && !NOT_IN_CI.contains(&module) {
            found.push(number);
        }
    }
    found
}

#[test]
fn each_ignored_test_is_slow_or_its_module_says_who_starts_it() {
    let mut labels = Vec::new();
    for file in files(".rs") {
        let lines = unexplained(&read(&file));
        labels.extend(lines.iter().map(|line| format!("{}:{line}", file.display())));
    }
    let nextest = read(&super::root().join(".config/nextest.toml"));
    let fallback = read(&super::root().join(".ci/test"));
    assert!(
        nextest.contains(&format!("({})::", NOT_IN_CI.join("|"))),
        "{nextest}"
    );
    for module in NOT_IN_CI {
        assert!(fallback.contains(&format!("--skip {module}::")), "{fallback}");
    }
    assert!(
        labels.is_empty(),
        "`.ci/test` would start these ignored tests; mark them as \"slow\" or move them to a module `by_hand`:\n{}",
        labels.join("\n")
    );
}

#[test]
fn ignored_tests_are_explained_by_their_reason_or_their_module() {
    let text = [
        "#[ignore = \"slow\"]",
        "#[ignore = \"an hour\"]",
        "mod by_hand {",
        "    #[ignore = \"an hour\"]",
        "mod tests {",
        "    #[ignore]",
    ]
    .join("\n");
    assert_eq!(unexplained(&text), [2, 6]);
}

fn words(name: &str) -> usize {
    name.split('_').filter(|word| !word.is_empty()).count()
}

#[test]
fn the_name_of_each_test_has_at_least_three_words() {
    let mut count = 0;
    let mut labels = Vec::new();
    for file in files(".rs") {
        let text = read(&file);
        for (line, name) in tests(&text) {
            count += 1;
            if words(name) < MIN_WORDS {
                labels.push(format!("{}:{line}: {name}", file.display()));
            }
        }
    }
    assert!(count > 1000, "only {count} tests were found");
    assert!(
        labels.is_empty(),
        "a name of at least three words says what is true; these do not:\n{}",
        labels.join("\n")
    );
}

#[test]
fn names_are_read_below_each_attribute_of_a_test() {
    let text = [
        "#[test]",
        "fn sums() {}",
        "    #[tokio::test(flavor = \"multi_thread\")]",
        "    #[ignore = \"a fn without end\"]",
        "    // A fn of its own.",
        "    async fn bad_input() {}",
        "fn no_test() {}",
        "#[test]",
        "fn $name() {}",
        "#[cfg(test)]",
        "fn no_test_either() {}",
    ]
    .join("\n");
    assert_eq!(tests(&text), [(2, "sums"), (6, "bad_input")]);
    assert_eq!(
        (words("sums"), words("bad_input"), words("_sums_add__up")),
        (1, 2, 3)
    );
}
