//! Takes checkpoints: looks at the layers, copies what changed, writes the record. Owns the open checkpoints of a transaction. Called by
//! `supervisor` while a session runs, and by `restore`.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;

use super::layer::{self, Layer, Scan};
use super::record::{self, By, PART, Record, deltas};
use super::squash::squash;
use crate::beneath;
use crate::hidden::Hidden;
use crate::transaction::{CHECKPOINTS, Manifest};

/// The checkpoints of one transaction, and what the layers held at the last of them.
#[derive(Debug)]
pub struct Checkpoints {
    /// Of the transaction.
    pub(super) directory: OwnedFd,
    pub(super) own: OwnedFd,
    pub(super) lowers: Vec<PathBuf>,
    pub(super) slots: Vec<usize>,
    pub(super) hidden: Hidden,
    pub(super) layers: Vec<Layer>,
    pub(super) records: Vec<Record>,
}

/// One that was begun while the session ran: most is copied, and what changed since is copied when no process runs.
#[derive(Debug)]
pub struct Pending {
    layers: Vec<Layer>,
    own: OwnedFd,
    number: usize,
    next_file: usize,
    bytes: u64,
    /// Bytes that the last look had to copy.
    pub copied: u64,
}

impl Checkpoints {
    /// Of a transaction at this path, whether or not its session runs.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        Checkpoints::of(beneath::root(path)?)
    }

    pub(super) fn of(directory: OwnedFd) -> Result<Self, Errno> {
        let manifest = Manifest::read(directory.as_fd())?.ok_or(Errno::NOENT)?;
        match rustix::fs::mkdirat(&directory, CHECKPOINTS, Mode::RWXU) {
            Err(Errno::EXIST) => {}
            other => other?,
        }
        let own = beneath::directory(directory.as_fd(), Path::new(CHECKPOINTS))?;
        let records = record::list(own.as_fd())?;
        let slots: Vec<usize> = manifest.trees.iter().map(|tree| tree.slot).collect();
        let lowers = manifest.trees.iter().map(|tree| tree.lower.clone()).collect();
        let last = records.last().map_or(0, |record| record.number);
        let mut all = Checkpoints {
            directory,
            own,
            lowers,
            hidden: Hidden::new(&manifest.hidden),
            layers: Vec::new(),
            slots,
            records,
        };
        all.layers = all.layers_at(last)?;
        Ok(all)
    }

    /// Oldest first.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    pub fn last(&self) -> usize {
        self.records.last().map_or(0, |record| record.number)
    }

    /// The checkpoint before so many steps. One that puts another back stands where that one stands.
    pub fn before(&self, steps: usize) -> Option<usize> {
        let mut at = self.position(self.last());
        for _ in 0..steps {
            let earlier = self.records.iter().rev().find(|record| record.number < at);
            at = match earlier {
                Some(record) => self.position(record.number),
                None if at > 0 && self.has_beginning() => 0,
                None => return None,
            };
        }
        Some(at)
    }

    fn position(&self, number: usize) -> usize {
        let of = |number: usize| self.records.iter().find(|record| record.number == number)?.of;
        let mut at = number;
        while let Some(earlier) = of(at) {
            at = earlier;
        }
        at
    }

    /// Whether what came before the first one that is left can still be put back.
    fn has_beginning(&self) -> bool {
        self.records.first().is_none_or(|record| !record.is_squashed)
    }

    pub fn has(&self, number: usize) -> bool {
        if number == 0 { self.has_beginning() } else { self.records.iter().any(|record| record.number == number) }
    }

    /// What the layers held then.
    pub(super) fn layers_at(&self, number: usize) -> Result<Vec<Layer>, Errno> {
        let mut layers: Vec<Layer> = self.slots.iter().map(|_| Layer::new()).collect();
        for record in self.records.iter().filter(|record| record.number <= number) {
            for (layer, delta) in layers.iter_mut().zip(deltas(self.own.as_fd(), record.number)?) {
                delta.apply(layer);
            }
        }
        Ok(layers)
    }

    fn upper(&self, slot: usize) -> Result<OwnedFd, Errno> {
        let slot = beneath::directory(self.directory.as_fd(), Path::new(&slot.to_string()))?;
        beneath::closed_directory(slot.as_fd(), "upper".as_ref())
    }

    /// Whether something differs from the last one. Looks at times alone.
    pub fn is_due(&self) -> Result<bool, Errno> {
        for ((slot, lower), layer) in self.slots.iter().zip(&self.lowers).zip(&self.layers) {
            let is_hidden = |path: &Path| self.hidden.is_hidden(&lower.join(path));
            let mut scan = Scan::new(layer, &is_hidden);
            scan.all(self.upper(*slot)?.as_fd(), None)?;
            if !layer::is_alike(layer, &scan.found) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Copies what changed since the last one, while processes may go on to write.
    pub fn begin(&self) -> Result<Pending, Errno> {
        crate::stages::remove(self.own.as_fd(), PART)?;
        let own = crate::staging::make(self.own.as_fd(), PART)?;
        let mut pending =
            Pending { layers: self.layers.clone(), own, number: self.last() + 1, next_file: 0, bytes: 0, copied: 0 };
        self.catch_up(&mut pending)?;
        Ok(pending)
    }

    /// Copies what changed since the last look.
    pub fn catch_up(&self, pending: &mut Pending) -> Result<(), Errno> {
        pending.copied = 0;
        for (which, (slot, lower)) in self.slots.iter().zip(&self.lowers).enumerate() {
            let is_hidden = |path: &Path| self.hidden.is_hidden(&lower.join(path));
            let upper = self.upper(*slot)?;
            let before = std::mem::take(&mut pending.layers[which]);
            let mut scan = Scan::new(&before, &is_hidden);
            let copies = layer::Copies {
                store: self.own.as_fd(),
                part: pending.own.as_fd(),
                number: pending.number,
                next: pending.next_file,
                bytes: 0,
                most: layer::MOST_BYTES.saturating_sub(pending.bytes),
            };
            let scanned = scan.all(upper.as_fd(), Some(copies));
            let Scan { found, copies, .. } = scan;
            if let Some(copies) = copies {
                pending.next_file = copies.next;
                pending.bytes += copies.bytes;
                pending.copied += copies.bytes;
            }
            scanned?;
            pending.layers[which] = found;
        }
        Ok(())
    }

    /// The rest, while no process of the session runs. `None` where nothing differs from the last one.
    pub fn finish(&mut self, mut pending: Pending, by: By, label: &str) -> Result<Option<usize>, Errno> {
        self.catch_up(&mut pending)?;
        self.settle(pending, by, label, None)
    }

    /// Writes the record down. Needs no process to stand still any more.
    pub(super) fn settle(
        &mut self,
        pending: Pending,
        by: By,
        label: &str,
        of: Option<usize>,
    ) -> Result<Option<usize>, Errno> {
        let Pending { layers, number, bytes, .. } = pending;
        let changes = record::differences(&self.layers, &layers);
        let is_noise = of.is_none() && record::is_noise(self.own.as_fd(), &self.layers, &layers, &changes);
        if is_noise || of.is_none() && changes.iter().all(record::Delta::is_empty) {
            // Only times differ; what was copied on the way goes.
            return crate::stages::remove(self.own.as_fd(), PART).map(|()| None);
        }
        let record = Record::new(number, by, label, of, bytes, &changes);
        let part = beneath::directory(self.own.as_fd(), Path::new(PART))?;
        record::write(part.as_fd(), &record, &changes)?;
        rustix::fs::renameat(&self.own, PART, &self.own, number.to_string())?;
        // The names in it are those of the place it has now.
        self.layers = layers;
        self.records.push(record);
        squash(self.own.as_fd(), &mut self.records, self.slots.len())?;
        Ok(Some(number))
    }
}
