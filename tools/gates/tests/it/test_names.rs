//! The name of a test is a claim, and no claim has fewer than three words. A test that is ignored is slow, or its module says who
//! starts it.

use std::collections::{BTreeMap, BTreeSet};

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

/// The lines of the pattern that names the slow tests which `.ci/run` leaves to `.ci/nightly`.
fn pattern(nextest: &str) -> impl Iterator<Item = &str> {
    let lines = nextest.lines().skip_while(|line| !line.contains("(?x)"));
    lines.skip(1).take_while(|line| !line.starts_with(')'))
}

/// The faults of that pattern. It names slow tests, and its comments name tests that stay. `known` says of each test if it is slow.
fn faults(nextest: &str, known: &BTreeMap<&str, bool>) -> Vec<String> {
    let (comments, names): (Vec<&str>, Vec<&str>) = pattern(nextest).partition(|line| line.starts_with('#'));
    let left_out: BTreeSet<&str> = names
        .iter()
        .map(|line| line.trim_start_matches(['|', ' ']))
        .collect();
    let mut found = Vec::new();
    for name in &left_out {
        match known.get(name) {
            None => found.push(format!("no test has the name {name}, which is left out")),
            Some(false) => found.push(format!("{name} is left out and is not slow")),
            Some(true) => {}
        }
    }
    let quoted = comments
        .iter()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    for name in quoted.filter(|word| word.contains('_')) {
        if left_out.contains(name) || !known.contains_key(name) {
            found.push(format!("{name} does not stay"));
        }
    }
    if left_out.is_empty() {
        found.push("no test is left out; remove the pattern".to_owned());
    }
    found
}

#[test]
fn what_the_quick_profile_leaves_out_is_slow_and_tried_by_tests_that_stay() {
    let texts: Vec<String> = files(".rs").iter().map(|file| read(file)).collect();
    let mut known = BTreeMap::new();
    for text in &texts {
        let lines: Vec<&str> = text.lines().collect();
        for (line, name) in tests(text) {
            let above = lines[..line - 1].iter().rev().map(|line| line.trim());
            let slow = above
                .take_while(|line| line.starts_with("#[") && !line.starts_with("#[test"))
                .any(|line| line == "#[ignore = \"slow\"]");
            *known.entry(name).or_default() |= slow;
        }
    }
    let found = faults(&read(&super::root().join(".config/nextest.toml")), &known);
    assert!(found.is_empty(), ".config/nextest.toml:\n{}", found.join("\n"));
}

#[test]
fn a_pattern_names_slow_tests_and_its_comments_name_those_that_stay() {
    let known = BTreeMap::from([
        ("a_long_soak", true),
        ("a_short_play", false),
        ("a_sweep_of_all", true),
    ]);
    let check = |lines: &str| faults(&format!("not test(/(?x) (^|::) (\n{lines}) $/)\n"), &known);
    let right = "# Soaks what `a_short_play` plays, as `ci` does.\n  a_long_soak\n| a_sweep_of_all\n";
    assert_eq!(check(right), [""; 0]);
    assert_eq!(
        check("# Soaks `a_sweep_of_all` and `a_play`.\n  a_soak\n| a_sweep_of_all\n| a_short_play\n"),
        [
            "a_short_play is left out and is not slow",
            "no test has the name a_soak, which is left out",
            "a_sweep_of_all does not stay",
            "a_play does not stay",
        ]
    );
    assert_eq!(check(""), ["no test is left out; remove the pattern"]);
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
