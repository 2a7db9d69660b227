//! What the supervisor tells the broker, and what it hears back, as bytes. Owns the encoding; both ends are this program, so
//! what cannot be read is a failed order. Used by both halves of `broker`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A path below a mount that must not show as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    pub path: PathBuf,
    pub how: How,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Open what is at a path now and keep it under `id`; what becomes of the path afterwards changes nothing.
    Hold {
        id: u64,
        path: PathBuf,
    },
    /// Make a file in the directory that is held under `id`, and hold that one instead.
    Make {
        id: u64,
        name: PathBuf,
        mode: u32,
    },
    /// Make directories below the one that is held under `id`, and hold the one called `hold` instead; the first of them must
    /// not be there yet. Where `hold` is empty the same one stays held, and what is there already is as good.
    MakeDirectories {
        id: u64,
        directories: Vec<(PathBuf, u32)>,
        hold: PathBuf,
    },
    /// Write what the descriptor that comes along stands for to the disk.
    Sync,
    Release {
        id: u64,
    },
    /// Mount what is held under `id` in the sandbox, with everything on it in one step.
    Mount {
        id: u64,
        target: PathBuf,
        write: bool,
        exec: bool,
        covers: Vec<Cover>,
        children: Vec<PathBuf>,
    },
    /// Take off what is mounted at a path.
    Remove {
        target: PathBuf,
    },
    /// Cover a name in the directory of the sandbox's view whose descriptor comes along.
    CoverAgain {
        name: PathBuf,
        how: How,
        exec: bool,
    },
}

/// How a name is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Cannot be read.
    Hide,
    /// Can be read without the values of secret names, as it is now.
    Mask,
    /// Can be read and not be changed.
    Seal,
    /// Can be written to, and not be renamed.
    Pin,
}

/// What the broker found or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Held { device: u64, inode: u64, mode: u32, size: u64 },
    Failed(Errno),
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn path(self, path: &Path) -> Self {
        let bytes = path.as_os_str().as_bytes();
        let mut writer = self.number(u64::try_from(bytes.len()).unwrap_or(0));
        writer.0.extend(bytes);
        writer
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(8)?;
        self.0 = rest;
        Some(u64::from_le_bytes(number.try_into().ok()?))
    }

    fn path(&mut self) -> Option<PathBuf> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(PathBuf::from(OsString::from_vec(bytes.to_vec())))
    }

    fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

impl Order {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let begin = |tag: u8| Writer(vec![tag]);
        match self {
            Order::Hold { id, path } => begin(b'H').number(*id).path(path).0,
            Order::Make { id, name, mode } => begin(b'C').number(*id).path(name).number((*mode).into()).0,
            Order::MakeDirectories { id, directories, hold } => {
                let out = begin(b'D').number(*id).path(hold).number(u64::try_from(directories.len()).unwrap_or(0));
                directories.iter().fold(out, |out, (path, mode)| out.path(path).number((*mode).into())).0
            }
            Order::Sync => begin(b'S').0,
            Order::Release { id } => begin(b'R').number(*id).0,
            Order::Remove { target } => begin(b'U').path(target).0,
            Order::CoverAgain { name, how, exec } => begin(b'A').path(name).number(how.code()).number((*exec).into()).0,
            Order::Mount { id, target, write, exec, covers, children } => {
                let mut out = begin(b'M').number(*id).path(target).number((*write).into()).number((*exec).into());
                out = out.number(u64::try_from(covers.len()).unwrap_or(0));
                for cover in covers {
                    out = out.path(&cover.path).number(cover.how.code());
                }
                out = out.number(u64::try_from(children.len()).unwrap_or(0));
                children.iter().fold(out, |out, child| out.path(child)).0
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Order> {
        let (tag, rest) = bytes.split_first()?;
        let mut reader = Reader(rest);
        let order = match tag {
            b'H' => Order::Hold { id: reader.number()?, path: reader.path()? },
            b'C' => {
                let (id, name) = (reader.number()?, reader.path()?);
                Order::Make { id, name, mode: u32::try_from(reader.number()?).ok()? }
            }
            b'D' => {
                let (id, hold) = (reader.number()?, reader.path()?);
                let mut directories = Vec::new();
                for _ in 0..reader.number()? {
                    directories.push((reader.path()?, u32::try_from(reader.number()?).ok()?));
                }
                Order::MakeDirectories { id, directories, hold }
            }
            b'S' => Order::Sync,
            b'R' => Order::Release { id: reader.number()? },
            b'U' => Order::Remove { target: reader.path()? },
            b'A' => {
                let (name, how) = (reader.path()?, How::of(reader.number()?)?);
                Order::CoverAgain { name, how, exec: reader.flag()? }
            }
            b'M' => {
                let (id, target) = (reader.number()?, reader.path()?);
                let (write, exec) = (reader.flag()?, reader.flag()?);
                let mut covers = Vec::new();
                for _ in 0..reader.number()? {
                    covers.push(Cover { path: reader.path()?, how: How::of(reader.number()?)? });
                }
                let mut children = Vec::new();
                for _ in 0..reader.number()? {
                    children.push(reader.path()?);
                }
                Order::Mount { id, target, write, exec, covers, children }
            }
            _ => return None,
        };
        reader.end(order)
    }
}

impl How {
    fn code(self) -> u64 {
        match self {
            How::Hide => 0,
            How::Seal => 1,
            How::Pin => 2,
            How::Mask => 3,
        }
    }

    fn of(code: u64) -> Option<How> {
        [How::Hide, How::Seal, How::Pin, How::Mask].into_iter().find(|how| how.code() == code)
    }
}

impl Outcome {
    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            Outcome::Done => vec![b'D'],
            Outcome::Held { device, inode, mode, size } => {
                Writer(vec![b'H']).number(device).number(inode).number(mode.into()).number(size).0
            }
            Outcome::Failed(errno) => Writer(vec![b'F']).number(errno.raw_os_error().cast_unsigned().into()).0,
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Outcome> {
        let (tag, rest) = bytes.split_first()?;
        let mut reader = Reader(rest);
        let outcome = match tag {
            b'D' => Outcome::Done,
            b'H' => {
                let (device, inode) = (reader.number()?, reader.number()?);
                Outcome::Held { device, inode, mode: u32::try_from(reader.number()?).ok()?, size: reader.number()? }
            }
            b'F' => {
                // What is no number of an error would panic below.
                let number = i32::try_from(reader.number()?).ok().filter(|number| (1..=4095).contains(number))?;
                Outcome::Failed(Errno::from_raw_os_error(number))
            }
            _ => return None,
        };
        reader.end(outcome)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path() -> impl Strategy<Value = PathBuf> {
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| OsString::from_vec(bytes).into())
    }

    fn how() -> impl Strategy<Value = How> {
        prop::sample::select(vec![How::Hide, How::Mask, How::Seal, How::Pin])
    }

    fn order() -> impl Strategy<Value = Order> {
        let covers = prop::collection::vec((path(), how()).prop_map(|(path, how)| Cover { path, how }), 0..4);
        let mount = (any::<u64>(), path(), any::<(bool, bool)>(), covers, prop::collection::vec(path(), 0..4));
        prop_oneof![
            (any::<u64>(), path()).prop_map(|(id, path)| Order::Hold { id, path }),
            (any::<u64>(), path(), any::<u32>()).prop_map(|(id, name, mode)| Order::Make { id, name, mode }),
            (any::<u64>(), prop::collection::vec((path(), any::<u32>()), 0..4), path())
                .prop_map(|(id, directories, hold)| Order::MakeDirectories { id, directories, hold }),
            Just(Order::Sync),
            any::<u64>().prop_map(|id| Order::Release { id }),
            path().prop_map(|target| Order::Remove { target }),
            (path(), how(), any::<bool>()).prop_map(|(name, how, exec)| Order::CoverAgain { name, how, exec }),
            mount.prop_map(|(id, target, (write, exec), covers, children)| Order::Mount {
                id,
                target,
                write,
                exec,
                covers,
                children
            }),
        ]
    }

    proptest! {
        #[test]
        fn an_order_has_one_form_and_no_part_of_it_is_another(order in order()) {
            let bytes = order.encode();
            prop_assert_eq!(Order::decode(&bytes), Some(order));
            for end in 0..bytes.len() {
                prop_assert_eq!(Order::decode(&bytes[..end]), None);
            }
        }

        #[test]
        fn what_is_read_from_changed_bytes_encodes_to_them(
            order in order(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            more in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut bytes = order.encode();
            bytes.extend(more);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(read) = Order::decode(&bytes) {
                prop_assert_eq!(read.encode(), &*bytes);
            }
        }

        #[test]
        fn an_outcome_has_one_form(
            tag in prop::sample::select(b"DHFx".to_vec()),
            numbers in prop::collection::vec(prop_oneof![0..70_000u64, any::<u64>()], 0..6),
        ) {
            let bytes = numbers.into_iter().fold(Writer(vec![tag]), Writer::number).0;
            if let Some(read) = Outcome::decode(&bytes) {
                prop_assert_eq!(read.encode(), bytes);
            }
        }
    }

    #[test]
    fn orders_and_outcomes_survive_the_way() {
        let name = OsString::from_vec(vec![b'/', 0xff, b'\n']);
        let covers =
            vec![Cover { path: "/a/b".into(), how: How::Seal }, Cover { path: name.clone().into(), how: How::Mask }];
        for order in [
            Order::Hold { id: 1, path: name.clone().into() },
            Order::Make { id: 2, name: "x".into(), mode: 0o644 },
            Order::Release { id: u64::MAX },
            Order::Remove { target: "/t".into() },
            Order::CoverAgain { name: name.clone().into(), how: How::Pin, exec: true },
            Order::Mount {
                id: 3,
                target: "/a".into(),
                write: true,
                exec: false,
                covers,
                children: vec!["/a/c".into()],
            },
        ] {
            let bytes = order.encode();
            assert_eq!(Order::decode(&bytes), Some(order));
            assert_eq!(Order::decode(&bytes[..bytes.len() - 1]), None);
        }
        for outcome in
            [Outcome::Done, Outcome::Held { device: 1, inode: 2, mode: 3, size: 4 }, Outcome::Failed(Errno::ACCESS)]
        {
            assert_eq!(Outcome::decode(&outcome.encode()), Some(outcome));
        }
    }
}
