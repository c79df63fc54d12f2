//! The users who can reach secrets on a volume: their owner alone, or the group of a volume that somebody else lends to this process.
//!
//! A container writes to a volume that belongs to another user and is open to a group of the process: Kubernetes makes it so for
//! `fsGroup`, and adds the rights of the group to every file at each start.
//!
//! | folder | its group | others |
//! |---|---|---|
//! | of this user | shut out | shut out |
//! | of another user, with a group of this process | accepted | refused |
//! | of another user, with another group | refused | refused |
//!
//! PRIVACY: access of everybody is never accepted. Nor is that of a group, unless the owner of the volume gave it to this process, or the
//! folder shuts the group out.

use std::fs::Metadata;
use std::path::Path;

/// `true` if a folder belongs to another user, who lends it to a group of this process and to nobody else.
#[must_use]
#[cfg_attr(not(unix), allow(unused_variables))]
pub fn is_lent(folder: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        Process::present().is_some_and(|process| {
            folder.is_dir() && process.borrows(folder.uid(), folder.gid()) && folder.mode() & 0o007 == 0
        })
    }
    #[cfg(not(unix))]
    false
}

/// `true` if nobody but this process and the owner of its volume can read a file.
#[must_use]
#[cfg_attr(not(unix), allow(unused_variables))]
pub fn is_private(path: &Path, file: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        if file.mode() & 0o007 != 0 {
            return false;
        }
        if file.mode() & 0o070 == 0 {
            return true;
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let (Ok(folder), Some(process)) = (folder.metadata(), Process::present()) else {
            return false;
        };
        let closed = folder.uid() == process.user && folder.mode() & 0o077 == 0;
        closed || (is_lent(&folder) && process.has_group(file.gid()))
    }
    #[cfg(not(unix))]
    true
}

/// The user and the groups of this process.
#[cfg(unix)]
#[derive(Debug, PartialEq, Eq)]
struct Process {
    user: u32,
    groups: Vec<u32>,
}

#[cfg(unix)]
impl Process {
    /// This process; `None` where the system does not say. A group then gets nothing.
    fn present() -> Option<Self> {
        Self::read(&std::fs::read_to_string("/proc/self/status").ok()?)
    }

    /// The process that a file `status` of Linux describes.
    fn read(status: &str) -> Option<Self> {
        let numbers = |name: &str| -> Option<Vec<u32>> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace()
                .map(|number| number.parse().ok())
                .collect()
        };
        // Real, effective, saved, and that of the file system.
        let (user, group) = (*numbers("Uid:")?.get(1)?, *numbers("Gid:")?.get(1)?);
        let mut groups = numbers("Groups:")?;
        groups.push(group);
        Some(Self { user, groups })
    }

    /// Root enters every folder, and takes none away from the group that uses it.
    fn has_group(&self, group: u32) -> bool {
        self.user == 0 || self.groups.contains(&group)
    }

    fn borrows(&self, owner: u32, group: u32) -> bool {
        owner != self.user && self.has_group(group)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_user_and_all_groups_are_the_effective_ones() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t10001 12 \n";
        let read = Process::read(status);
        let expected = Process {
            user: 2,
            groups: vec![10_001, 12, 6],
        };
        assert_eq!(read.as_ref(), Some(&expected));
        assert!(expected.borrows(0, 10_001) && expected.borrows(0, 6));
        assert!(!expected.borrows(2, 10_001), "its own folder is not lent");
        assert!(!expected.borrows(0, 5), "a group that it has left");
        assert_eq!(Process::read("Uid:\t1\n"), None);
        assert_eq!(Process::read("Uid:\tx\t1\nGid:\t1\t1\nGroups:\t\n"), None);
    }

    #[test]
    fn a_group_reads_a_secret_only_behind_a_closed_folder_and_everybody_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "secret").unwrap();
        let set = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (of_folder, of_file, private) in [
            (0o700, 0o600, true),
            (0o755, 0o600, true),
            (0o700, 0o660, true),
            (0o750, 0o660, false),
            (0o770, 0o640, false),
            (0o700, 0o604, false),
            (0o700, 0o664, false),
        ] {
            set(folder.path(), of_folder);
            set(&path, of_file);
            let found = is_private(&path, &path.metadata().unwrap());
            assert_eq!(found, private, "{of_file:o} in {of_folder:o}");
        }
        // A folder of this user is made private, and is therefore not lent.
        assert!(!is_lent(&folder.path().metadata().unwrap()));
        set(folder.path(), 0o700);
    }
}
