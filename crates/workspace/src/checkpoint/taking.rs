//! Takes checkpoints: looks at the layers, copies what changed, writes the record. Owns the open checkpoints of a transaction. Called by
//! `supervisor` while a session runs, and by `restore`.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::layer::{self, Copy, Held, Layer, Scan};
use super::note::CHECKPOINTS;
use super::record::{self, By, PART, Record, deltas};
use super::squash::{REFUSED_PAST, squash};
use crate::changes::is_same_file;
use crate::entry::Entry;
use crate::hidden::Hidden;
use crate::origins::{self, Origins};
use crate::state::State;
use crate::transaction::{Manifest, OpenError, TreeRecord, boot, locked, open_lower};
use crate::{beneath, journal, stages, staging, units};

/// Written by the process that copies while the session runs.
const PREPARED: &str = "prepared.json";
/// So many bytes are copied while the session stands still, where it does not write faster than they can be copied.
const LITTLE: u64 = 16 << 20;
const MOST_ROUNDS: usize = 3;

/// The checkpoints of one transaction, and what the layers held at the last of them.
#[derive(Debug)]
pub struct Checkpoints {
    /// Of the transaction.
    pub(super) directory: OwnedFd,
    pub(super) own: OwnedFd,
    pub(super) trees: Vec<TreeRecord>,
    is_same_boot: bool,
    pub(super) masked: Hidden,
    pub(super) hidden: Hidden,
    /// Names that were put back and began as copies of the host's.
    origins: Origins,
    pub(super) layers: Vec<Layer>,
    pub(super) records: Vec<Record>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Prepared {
    next_file: usize,
    bytes: u64,
    changes: Vec<record::Delta>,
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

/// Says that what the session left was taken.
const END_TAKEN: &str = "end-taken.json";

impl Checkpoints {
    /// Of a transaction at this path, whether or not its session runs.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        Checkpoints::of(beneath::root(path)?)
    }

    /// For putting one back after the session: no other process has the transaction, and nothing of it was committed.
    pub fn open_sealed(path: &Path) -> Result<Self, OpenError> {
        let (directory, state) = locked(path)?;
        if !matches!(state, State::Sealed | State::Reviewing) {
            return Err(OpenError::State { state });
        }
        if !stages::numbers(directory.as_fd()).map_err(OpenError::Records)?.is_empty() {
            return Err(OpenError::Committed);
        }
        Checkpoints::of(directory).map_err(OpenError::Records)
    }

    /// What the session left is the last checkpoint, so that it can be put back, too. Once: from then on nothing but this changes the
    /// layers.
    pub fn take_end(&mut self) -> Result<(), Errno> {
        if Entry::at(self.own.as_fd(), OsStr::new(END_TAKEN))?.is_some() {
            return Ok(());
        }
        let pending = self.begin()?;
        self.finish(pending, By::Undo, "the end of the session")?;
        journal::write_plainly(self.own.as_fd(), END_TAKEN, &true)
    }

    fn of(directory: OwnedFd) -> Result<Self, Errno> {
        let manifest = Manifest::read(directory.as_fd())?.ok_or(Errno::NOENT)?;
        // Its layer holds the whole project, and is compared with what was copied.
        if manifest.trees.iter().any(|tree| tree.is_copy) {
            return Err(Errno::OPNOTSUPP);
        }
        match rustix::fs::mkdirat(&directory, CHECKPOINTS, Mode::RWXU) {
            Err(Errno::EXIST) => {}
            other => other?,
        }
        let own = beneath::directory(directory.as_fd(), Path::new(CHECKPOINTS))?;
        let records = record::list(own.as_fd())?;
        let last = records.last().map_or(0, |record| record.number);
        let mut all = Checkpoints {
            own,
            is_same_boot: boot()? == manifest.boot,
            masked: Hidden::new(&manifest.masked),
            hidden: Hidden::new(&manifest.hidden),
            origins: origins::read(directory.as_fd(), manifest.trees.len())?,
            directory,
            layers: Vec::new(),
            trees: manifest.trees,
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
            if at == 0 || self.is_merged(at) {
                return None;
            }
            let earlier = self.records.iter().rev().find(|record| record.number < at);
            at = earlier.map_or(0, |record| self.position(record.number));
        }
        Some(at)
    }

    /// Whether steps between it and the one before are gone: going back past them has to be said by number.
    fn is_merged(&self, number: usize) -> bool {
        self.records.iter().any(|record| record.number == number && record.is_squashed)
    }

    fn position(&self, number: usize) -> usize {
        let of = |number: usize| self.records.iter().find(|record| record.number == number)?.of;
        let mut at = number;
        while let Some(earlier) = of(at) {
            at = earlier;
        }
        at
    }

    /// The beginning was empty, and can be put back whatever was merged.
    pub fn has(&self, number: usize) -> bool {
        number == 0 || self.records.iter().any(|record| record.number == number)
    }

    /// What the layers held then.
    pub(super) fn layers_at(&self, number: usize) -> Result<Vec<Layer>, Errno> {
        let mut layers: Vec<Layer> = self.trees.iter().map(|_| Layer::new()).collect();
        for record in self.records.iter().filter(|record| record.number <= number) {
            for (layer, delta) in layers.iter_mut().zip(deltas(self.own.as_fd(), record.number)?) {
                delta.apply(layer);
            }
        }
        Ok(layers)
    }

    /// The host's directory of a tree, where it is still the one that the session began with.
    pub(super) fn lower(&self, which: usize) -> Result<OwnedFd, Errno> {
        let record = self.trees.get(which).ok_or(Errno::INVAL)?;
        open_lower(record, self.is_same_boot).map_err(|_| Errno::STALE)
    }

    fn upper(&self, slot: usize) -> Result<OwnedFd, Errno> {
        let slot = beneath::directory(self.directory.as_fd(), Path::new(&slot.to_string()))?;
        beneath::closed_directory(slot.as_fd(), "upper".as_ref())
    }

    /// Names of which nothing is kept, and which stay as they are when an earlier state is put back.
    pub(super) fn is_left_out(&self, tree: &TreeRecord, path: &Path) -> bool {
        self.hidden.is_hidden(&tree.lower.join(path)) || units::is_lock(path, tree.is_repository)
    }

    /// Whether something differs from the last one. Looks at times alone.
    pub fn is_due(&self) -> Result<bool, Errno> {
        for ((tree, layer), origins) in self.trees.iter().zip(&self.layers).zip(&self.origins) {
            let is_hidden = |path: &Path| self.is_left_out(tree, path);
            let mut scan = Scan::new(layer, &is_hidden, origins);
            scan.all(self.upper(tree.slot)?.as_fd(), None)?;
            if !layer::is_alike(layer, &scan.found) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Copies what changed since the last one, while processes may go on to write.
    pub fn begin(&self) -> Result<Pending, Errno> {
        if self.records.iter().map(|record| record.bytes).sum::<u64>() > REFUSED_PAST {
            return Err(Errno::DQUOT);
        }
        stages::remove(self.own.as_fd(), PART)?;
        let own = staging::make(self.own.as_fd(), PART)?;
        let mut pending =
            Pending { layers: self.layers.clone(), own, number: self.last() + 1, next_file: 0, bytes: 0, copied: 0 };
        self.catch_up(&mut pending)?;
        Ok(pending)
    }

    /// Copies what changed since the last look.
    pub fn catch_up(&self, pending: &mut Pending) -> Result<(), Errno> {
        self.catch_up_within(pending, layer::MOST_BYTES)
    }

    /// The same, of at most so many bytes.
    pub fn catch_up_within(&self, pending: &mut Pending, most: u64) -> Result<(), Errno> {
        pending.copied = 0;
        for (which, tree) in self.trees.iter().enumerate() {
            let is_hidden = |path: &Path| self.is_left_out(tree, path);
            let upper = self.upper(tree.slot)?;
            let before = std::mem::take(&mut pending.layers[which]);
            let mut scan = Scan::new(&before, &is_hidden, &self.origins[which]);
            let copies = layer::Copies {
                store: self.own.as_fd(),
                part: pending.own.as_fd(),
                number: pending.number,
                next: pending.next_file,
                bytes: 0,
                most: most.saturating_sub(pending.copied).min(layer::MOST_BYTES.saturating_sub(pending.bytes)),
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

    /// Where a new copy is the same as one of an earlier state, that one counts.
    pub(super) fn refer_to(&self, earlier: &[Layer], pending: &mut Pending) -> Result<(), Errno> {
        // A file with several names has one copy.
        let mut same: HashMap<Copy, Copy> = HashMap::new();
        for (layer, earlier) in pending.layers.iter_mut().zip(earlier) {
            for (path, held) in layer {
                let (Held::File { copy, mode, .. }, Some(Held::File { copy: old, mode: with, .. })) =
                    (held, earlier.get(path))
                else {
                    continue;
                };
                if copy.0 != pending.number || mode != with {
                    continue;
                }
                if same.get(copy) == Some(old) {
                    *copy = *old;
                    continue;
                }
                let (new, number) = (pending.own.as_fd(), copy.1.to_string());
                let kept = beneath::directory(self.own.as_fd(), Path::new(&old.0.to_string()))?;
                let is_same = is_same_file((new, number.as_ref()), (kept.as_fd(), old.1.to_string().as_ref()));
                if is_same {
                    same.insert(*copy, *old);
                    *copy = *old;
                }
            }
        }
        let files = pending.layers.iter().flat_map(|layer| layer.values());
        let used: HashSet<Copy> = files.filter_map(Held::copy).collect();
        for (_, number) in same.into_keys().filter(|copy| !used.contains(copy)) {
            rustix::fs::unlinkat(&pending.own, number.to_string(), AtFlags::empty())?;
        }
        Ok(())
    }

    /// In a process beside the supervisor: copies until little is left, and writes down what was found. `false` where nothing changed.
    pub fn prepare(&self) -> Result<bool, Errno> {
        if !self.is_due()? {
            return Ok(false);
        }
        let mut pending = self.begin()?;
        for _ in 0..MOST_ROUNDS {
            if pending.copied <= LITTLE {
                break;
            }
            self.catch_up(&mut pending)?;
        }
        let changes = record::differences(&self.layers, &pending.layers);
        let prepared = Prepared { next_file: pending.next_file, bytes: pending.bytes, changes };
        journal::write_plainly(pending.own.as_fd(), PREPARED, &prepared)?;
        Ok(true)
    }

    /// What such a process left.
    pub fn prepared(&self) -> Result<Pending, Errno> {
        let own = beneath::directory(self.own.as_fd(), Path::new(PART))?;
        let Prepared { next_file, bytes, changes } = journal::read(own.as_fd(), PREPARED)?.ok_or(Errno::NOENT)?;
        rustix::fs::unlinkat(&own, PREPARED, AtFlags::empty())?;
        let mut layers = self.layers.clone();
        for (layer, delta) in layers.iter_mut().zip(changes) {
            delta.apply(layer);
        }
        Ok(Pending { layers, own, number: self.last() + 1, next_file, bytes, copied: 0 })
    }

    /// What such a process needs.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.directory.as_fd(), self.own.as_fd()]
    }

    /// Gives the last one to what asked for it a moment too late, where nothing had asked for it by name.
    pub fn claim_last(&mut self, by: By, label: &str) -> Result<(), Errno> {
        let Some(last) = self.records.last_mut().filter(|last| last.by == By::Child) else { return Ok(()) };
        last.label_as(by, label);
        let directory = beneath::directory(self.own.as_fd(), Path::new(&last.number.to_string()))?;
        record::write_record(directory.as_fd(), last)
    }

    /// Written down before the checkpoint that stands for what was put back.
    pub(super) fn note_origins(&mut self, new: Origins) -> Result<(), Errno> {
        origins::add(self.directory.as_fd(), new, false)?;
        self.origins = origins::read(self.directory.as_fd(), self.trees.len())?;
        Ok(())
    }

    pub(super) fn note_stayed(&mut self, stayed: &[PathBuf]) -> Result<(), Errno> {
        let Some(last) = self.records.last_mut().filter(|_| !stayed.is_empty()) else { return Ok(()) };
        last.stayed = stayed.to_vec();
        let directory = beneath::directory(self.own.as_fd(), Path::new(&last.number.to_string()))?;
        record::write_record(directory.as_fd(), last)
    }

    /// The rest, while no process of the session runs. `None` where nothing differs from the last one.
    pub fn finish(&mut self, mut pending: Pending, by: By, label: &str) -> Result<Option<usize>, Errno> {
        self.catch_up(&mut pending)?;
        self.write_down(pending, by, label)
    }

    /// The same where the rest was copied. Needs no process to stand still any more.
    pub fn write_down(&mut self, pending: Pending, by: By, label: &str) -> Result<Option<usize>, Errno> {
        self.settle(pending, by, label, None)
    }

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
            if !is_noise {
                self.layers = layers;
            }
            return stages::remove(self.own.as_fd(), PART).map(|()| None);
        }
        let record = Record::new(number, by, label, of, bytes, &changes);
        let part = beneath::directory(self.own.as_fd(), Path::new(PART))?;
        record::write(part.as_fd(), &record, &changes)?;
        rustix::fs::renameat(&self.own, PART, &self.own, number.to_string())?;
        // The names in it are those of the place it has now.
        self.layers = layers;
        self.records.push(record);
        squash(self.own.as_fd(), &mut self.records)?;
        Ok(Some(number))
    }
}
