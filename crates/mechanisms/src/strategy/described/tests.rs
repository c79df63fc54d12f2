use super::*;

const TRIANGLE: [f64; 6] = [1.0, 0.5, 1.0, 0.25, 0.5, 1.0];

fn the_dense_one() -> Strategy {
    Strategy::Dense(Dense::new(3, TRIANGLE.to_vec()).unwrap())
}

fn the_toeplitz_one() -> Strategy {
    Strategy::BandedToeplitz(BandedToeplitz::new(vec![1.0, 0.5, 0.25]).unwrap())
}

fn read(bytes: &[u8]) -> Strategy {
    Described::read(bytes).unwrap().strategy().clone()
}

fn refused(bytes: &[u8]) -> String {
    Described::read(bytes).unwrap_err().to_string()
}

/// A file as `numpy.save` writes it.
fn npy(description: &str, values: &[f64]) -> Vec<u8> {
    let length = (description.len() as u16).to_le_bytes();
    let numbers = values.iter().flat_map(|value| value.to_le_bytes());
    [b"\x93NUMPY\x01\x00", &length[..], description.as_bytes()]
        .concat()
        .into_iter()
        .chain(numbers)
        .collect()
}

#[test]
fn all_forms_of_one_matrix_are_that_matrix() {
    let square = [1.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.25, 0.5, 1.0];
    let by_columns = [1.0, 0.5, 0.25, 0.0, 1.0, 0.5, 0.0, 0.0, 1.0];
    let header = |order| format!("{{'descr': '<f8', 'fortran_order': {order}, 'shape': (3, 3), }}   \n");
    for bytes in [
        br#"{"kind": "dense", "rounds": 3, "entries": [1, 0.5, 1, 0.25, 0.5, 1]}"#.to_vec(),
        b"[[1], [0.5, 1], [0.25, 0.5, 1]]".to_vec(),
        b" [[1, 0, 0], [0.5, 1, 0], [0.25, 0.5, 1]]\n".to_vec(),
        b"# numpy.savetxt\n1.0e+00 0 0\n5e-1 1 0\n\n0.25 0.5 1\n".to_vec(),
        b"1\n0.5,1\n0.25,0.5,1\n".to_vec(),
        npy(&header("False"), &square),
        npy(&header("True"), &by_columns),
    ] {
        assert_eq!(
            read(&bytes),
            the_dense_one(),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
    }
}

#[test]
fn all_forms_of_coefficients_are_one_toeplitz_matrix() {
    for bytes in [
        br#"{"kind": "banded-toeplitz", "coefficients": [1, 0.5, 0.25]}"#.to_vec(),
        b"[1, 0.5, 0.25]".to_vec(),
        b"1\n0.5\n0.25\n".to_vec(),
        b"1 0.5, 0.25".to_vec(),
        npy(
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }\n",
            &[1.0, 0.5, 0.25],
        ),
    ] {
        assert_eq!(read(&bytes), the_toeplitz_one());
    }
}

#[test]
fn a_file_that_is_no_matrix_says_where() {
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }\n";
    for (bytes, part) in [
        (b"[[1, 0.5], [0, 1]]".to_vec(), "got 0.5 in row 0, column 1"),
        (b"[[1, 0, 0], [1, 1]]".to_vec(), "got 3"),
        (
            b"[[1], [1, 0]]".to_vec(),
            "diagonal entry of a matrix must be positive, got 0",
        ),
        (b"1 2\n3\n".to_vec(), "got 2 in row 0, column 1"),
        (b"1\nnan\n".to_vec(), "finite"),
        (b"[1, NaN]".to_vec(), "line 1 column"),
        (b"[1, \"x\"]".to_vec(), "a list of numbers"),
        (b"1 x".to_vec(), "\"x\""),
        (b"".to_vec(), "an empty file"),
        (b"\xff\xfe1".to_vec(), "no text"),
        (
            br#"{"theta": [1], "omega": [1]}"#.to_vec(),
            "the keys [omega, theta]",
        ),
        (
            br#"{"kind": "dense", "rounds": 100000, "entries": [1]}"#.to_vec(),
            "number of entries of a matrix",
        ),
        (npy(header, &[1.0, 0.0, 1.0]), "damaged"),
        (
            npy(&header.replace("<f8", "<f4"), &[1.0; 4]),
            "got '<f4'; save it by",
        ),
        (npy(&header.replace("(2, 2)", "(4, 1)"), &[1.0; 4]), "[4, 1]"),
        (
            npy(&header.replace("(2, 2)", "(99999999999, 99999999999)"), &[1.0]),
            "damaged",
        ),
        (npy("{'shape': (", &[]), "damaged"),
        (b"\x93NUMPY\x01\x00\xff\xff{".to_vec(), "damaged"),
    ] {
        let text = refused(&bytes);
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn every_cut_and_every_changed_byte_ends_in_an_answer() {
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }\n";
    let whole = npy(header, &[1.0, 0.0, 0.5, 1.0]);
    for end in 0..whole.len() {
        assert!(Described::read(&whole[..end]).is_err());
        for value in [0, 0x27, 0x39, 0xff] {
            let mut changed = whole.clone();
            changed[end] = value;
            // It may be another matrix, and never a panic.
            let _ = Described::read(&changed);
        }
    }
}
