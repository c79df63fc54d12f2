use super::*;

#[test]
fn writes_whole_files_and_replaces_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    write_atomic(&path, b"one").unwrap();
    write_atomic(&path, b"two").unwrap();
    assert_eq!(read(&path).unwrap(), b"two");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_missing_folder_is_named() {
    let error = write_atomic(Path::new("no/such/folder/file"), b"x").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot write no/such/folder/file: "),
        "{error}"
    );
}

#[test]
fn lines_are_cut_back_to_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines.jsonl");
    let mut lines = JsonLines::open(&path, 0).unwrap();
    lines.append(&1).unwrap();
    let at_checkpoint = lines.length();
    lines.append(&2).unwrap();
    drop(lines);
    let mut lines = JsonLines::open(&path, at_checkpoint).unwrap();
    lines.append(&3).unwrap();
    assert_eq!(read(&path).unwrap(), b"1\n3\n");
    assert!(matches!(
        JsonLines::open(&path, 99),
        Err(DirectoryError::Damaged { .. })
    ));
}

#[test]
fn a_larger_file_than_its_name_allows_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        CONFIG_FILE,
        PRIVACY_FILE,
        VOCAB_FILE,
        MECHANISM_FILE,
        MODEL_FILE,
        LEDGER_FILE,
        LANE_VALUES_FILE,
        LANE_FILE,
        COINS_FILE,
        REPLAYS_FILE,
        AUDIT_FILE,
        ".base",
    ] {
        let path = folder.path().join(name);
        let limit = limit_of(&path);
        // Sparse: no more than its length is there.
        File::create(&path).unwrap().set_len(limit + 1).unwrap();
        let message = read(&path).unwrap_err().to_string();
        let expected = format!("{name}: expected at most {limit} bytes, got {}", limit + 1);
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[test]
fn a_line_longer_than_any_honest_one_is_refused_without_reading_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(METRICS_FILE);
    let file = File::create(&path).unwrap();
    file.set_len(40 * GIB).unwrap();
    let message = Lines::open(&path).unwrap().next().unwrap_err().to_string();
    assert!(
        message.ends_with("expected at most 1048576 bytes in line 1, got more"),
        "{message}"
    );
}

#[test]
fn lines_are_numbered_as_they_stand_and_a_torn_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(LEDGER_FILE);
    fs::write(&path, "one\n\n three\nfo").unwrap();
    let mut lines = Lines::open(&path).unwrap();
    let mut found = Vec::new();
    while let Some(line) = lines.next().unwrap() {
        found.push((line.number, line.bytes.to_vec(), line.whole));
    }
    let expected = [(1, &b"one"[..], true), (3, b" three", true), (4, b"fo", false)];
    assert!(
        found
            .iter()
            .map(|(number, bytes, whole)| (*number, &bytes[..], *whole))
            .eq(expected)
    );
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn secrets_are_their_owner_s_alone_and_other_files_as_the_umask_says() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // What the umask leaves of 0666 is what a file made by others gets.
        fs::write(at("plain"), "").unwrap();
        write_atomic(&at("ordinary"), b"x").unwrap();
        assert_eq!(mode(&at("ordinary")), mode(&at("plain")));
        JsonLines::open(&at("lines"), 0).unwrap();
        assert_eq!(mode(&at("lines")), mode(&at("plain")));
        write_secret_with(&at("secret"), |_| Ok(())).unwrap();
        assert_eq!(mode(&at("secret")), 0o600);
        write_secret_json(&at("figures"), &1).unwrap();
        assert_eq!(mode(&at("figures")), 0o600);
        // Also where a writer puts a wider file in the place of the temporary one, and over a wider file of that name.
        fs::set_permissions(at("plain"), fs::Permissions::from_mode(0o644)).unwrap();
        write_secret_at(&at("plain"), |temporary| {
            fs::remove_file(temporary).unwrap();
            fs::write(temporary, "wide").unwrap();
            fs::set_permissions(temporary, fs::Permissions::from_mode(0o666)).unwrap();
            Ok(())
        })
        .unwrap();
        assert_eq!(mode(&at("plain")), 0o600);
        secret_folder(&at("new")).unwrap();
        fs::create_dir(at("old")).unwrap();
        fs::set_permissions(at("old"), fs::Permissions::from_mode(0o755)).unwrap();
        secret_folder(&at("old")).unwrap();
        assert_eq!((mode(&at("new")), mode(&at("old"))), (0o700, 0o700));
    }

    #[test]
    fn links_are_neither_read_nor_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "precious\n").unwrap();
        symlink(at("precious"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        for name in ["link", "dangling"] {
            for error in [
                read(&at(name)).unwrap_err(),
                read_if_there(&at(name)).unwrap_err(),
                open_to_write(&at(name)).unwrap_err(),
                JsonLines::open(&at(name), 0).unwrap_err(),
                Lines::open(&at(name)).unwrap_err(),
            ] {
                assert!(error.to_string().ends_with("got a symbolic link"), "{error}");
            }
            assert!(exists(&at(name)));
        }
        assert!(!at("nowhere").exists());
        // A file that the user names may be a link.
        assert_eq!(read_given(&at("link"), 100).unwrap(), b"precious\n");
        assert!(read_given(&at("link"), 8).is_err());
        // Writing replaces the link.
        write_atomic(&at("link"), b"new").unwrap();
        assert_eq!(fs::read(at("precious")).unwrap(), b"precious\n");
        // A second name is another way to the same contents.
        fs::hard_link(at("precious"), at("second")).unwrap();
        let error = JsonLines::open(&at("second"), 0).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("got a file with 2 names (hard links)"),
            "{error}"
        );
        assert_eq!(fs::read(at("precious")).unwrap(), b"precious\n");
    }

    #[test]
    fn folders_are_not_entered_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/.partial-1"), "").unwrap();
        symlink(at("elsewhere"), at("plots")).unwrap();
        for error in [super::folder(&at("plots")), secret_folder(&at("plots"))] {
            let error = error.unwrap_err().to_string();
            assert!(error.ends_with("got a symbolic link"), "{error}");
        }
        remove_partial(&at("plots"));
        assert!(at("elsewhere/.partial-1").exists());
        remove_partial(&at("elsewhere"));
        assert!(!at("elsewhere/.partial-1").exists());
    }

    #[test]
    fn pipes_and_folders_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("ledger.jsonl");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for error in [
            read(&pipe).unwrap_err(),
            Lines::open(&pipe).unwrap_err(),
            JsonLines::open(&pipe, 0).unwrap_err(),
        ] {
            assert!(error.to_string().ends_with("got a pipe"), "{error}");
        }
        let error = read(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("got a folder"), "{error}");
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().ends_with("got a device"), "{error}");
    }
}
