//! Extended attributes of files: those that programs set go with a file, those of overlayfs and of the kernel do not. Owns which
//! is which. Used by `origins` and `staging`.

use rustix::io::Errno;

/// What overlayfs says of its own layers in a user namespace.
pub(crate) const OVERLAY: &str = "user.overlay.";
/// On everything that was copied up, under whatever name it is now. A link has none.
pub(crate) const ORIGIN: &str = "user.overlay.origin";

/// Of a directory: nothing of the layers below is in it.
pub(crate) const OPAQUE: &str = "user.overlay.opaque";

/// An extended attribute: its name and its value.
type Attribute = (Vec<u8>, Vec<u8>);

/// The extended attributes that programs set, without those of overlayfs.
pub(crate) fn attributes(file: &std::fs::File) -> Result<Vec<Attribute>, Errno> {
    let mut list = Vec::new();
    for name in attribute_names(|buffer| rustix::fs::flistxattr(file, buffer))? {
        if name.starts_with(b"user.") && !name.starts_with(OVERLAY.as_bytes()) {
            let mut value = vec![0u8; 1 << 16];
            let length = rustix::fs::fgetxattr(file, name.as_slice(), &mut value)?;
            value.truncate(length);
            list.push((name, value));
        }
    }
    list.sort();
    Ok(list)
}

/// Names of all extended attributes that this user can see, by what lists them.
pub(crate) fn attribute_names(list: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<Vec<u8>>, Errno> {
    // As long as the kernel lets a list be.
    let mut buffer = vec![0u8; 1 << 16];
    let length = match list(&mut buffer) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    Ok(buffer[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}
