use super::*;
use crate::Postgres;

fn error(url: &str) -> String {
    settings(url).err().unwrap().to_string()
}

#[test]
fn a_password_is_in_no_message() {
    let secret = "postgres://me:hunter2@/x?host=/nowhere";
    assert_eq!(
        settings(secret).unwrap().place,
        "the database x of Postgres at /nowhere"
    );
    let tls = "postgres://me:hunter2@host/x?sslmode=verify-full&sslrootcert=/nowhere/ca.pem";
    for text in [
        Postgres::open(secret),
        Postgres::open("postgres://me:hunter2@["),
        Postgres::open(tls),
    ] {
        let text = format!("{:?} {}", text, text.as_ref().unwrap_err());
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn encryption_is_never_asked_for_without_an_authority() {
    for url in [
        "postgres://me@host/x?sslmode=require",
        "postgres://me@host/x?connect_timeout=3&sslmode=verify-full",
    ] {
        assert!(error(url).contains("need sslrootcert=FILE"), "{}", error(url));
    }
    let unused = "postgres://me@host/x?sslrootcert=/a.pem";
    assert!(
        error(unused).contains("needs sslmode=verify-full"),
        "{}",
        error(unused)
    );
    let other = "postgres://me@host/x?sslmode=allow";
    assert!(error(other).contains("got \"allow\""), "{}", error(other));
}

#[test]
fn settings_of_tls_are_taken_out_and_the_others_stay() {
    let url = "postgres://me@/x?host=/run&sslmode=disable&connect_timeout=3";
    let (plain, roots) = without_tls(url).unwrap();
    assert_eq!(
        (plain.as_str(), roots),
        ("postgres://me@/x?host=/run&connect_timeout=3", None)
    );
    let url = "postgres://me@h/x?sslmode=verify-full&sslrootcert=%2Fetc%2Fan%20authority.pem";
    let (plain, roots) = without_tls(url).unwrap();
    assert_eq!(plain, "postgres://me@h/x");
    assert_eq!(roots, Some(PathBuf::from("/etc/an authority.pem")));
    assert!(without_tls("postgres://h/x?sslmode=require&sslrootcert=%2").is_err());
    assert!(without_tls("postgres://h/x?sslmode=require&sslrootcert=%zz").is_err());
    assert!(without_tls("postgres://h/x?sslmode=require&sslrootcert=%ff").is_err());
}

#[test]
fn a_file_without_certificates_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.pem");
    std::fs::write(&path, "").unwrap();
    let url = format!(
        "postgres://me@h/x?sslmode=verify-full&sslrootcert={}",
        path.display()
    );
    assert!(error(&url).contains("empty.pem, got none"), "{}", error(&url));
}
