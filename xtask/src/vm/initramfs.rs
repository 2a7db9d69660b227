//! The first file system of a guest: busybox, modules, scripts. Owns the archive format (`newc`, which the kernel
//! unpacks); what the scripts do is theirs.

/// An archive that grows file by file.
#[derive(Debug, Default)]
pub(crate) struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

impl Initramfs {
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        // inode, mode, uid, gid, links, time, size, device (4), length of the name with its zero, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_start_at_multiples_of_four_and_the_trailer_ends_them() {
        let mut archive = Initramfs::default();
        archive.directory("bin");
        archive.file("bin/x", b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let starts: Vec<_> = bytes.windows(6).enumerate().filter(|(_, w)| w == b"070701").map(|(at, _)| at).collect();
        assert_eq!(starts.len(), 3);
        assert!(starts.iter().all(|start| start % 4 == 0), "{starts:?}");
        assert!(bytes.windows(11).any(|window| window == b"TRAILER!!!\0"));
    }
}
