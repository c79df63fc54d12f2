use std::path::Path;

use super::*;

#[test]
fn memory_and_disk_are_read_from_the_tables_of_the_system() {
    assert_eq!(
        available("MemTotal:  24 kB\nMemAvailable:   2048 kB\n"),
        Some(2 << 20)
    );
    assert_eq!(available("MemTotal:  24 kB\n"), None);
    let table = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a b 100 40 60 40% /folder\n";
    assert_eq!(free(table), Some(60 << 10));
    assert_eq!(
        free("Filesystem 1024-blocks Used Available Capacity Mounted on\n"),
        None
    );
}

#[test]
fn an_item_that_lacks_memory_or_disk_says_what_it_needs() {
    let needs = Needs {
        memory: 300 << 20,
        disk: 500 << 20,
    };
    let error = needs.check_memory(Some(200 << 20)).unwrap_err().to_string();
    assert!(error.contains("300 MB") && error.contains("200 MB"), "{error}");
    let error = needs
        .check_disk(Some(7 << 20), Path::new("/data"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("500 MB") && error.contains("/data has 7 MB"),
        "{error}"
    );
    needs.check_memory(Some(300 << 20)).unwrap();
    needs.check_disk(None, Path::new("/data")).unwrap();
}
