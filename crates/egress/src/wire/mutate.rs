//! Broken inputs for the tests of this directory: repeatable changes of good messages, and every way to cut one in two.
//! Owns no expectations; each protocol's tests say what must hold.

use super::Progress;

/// A small generator that gives the same sequence everywhere.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(super) fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits fit") % below.max(1)
    }

    fn byte(&mut self) -> u8 {
        const TELLING: &[u8] = b"\0\n\r\t :;,@[]%#/\\.-_0159aAfFzZ\x7f\x80\xff";
        if self.roll(2) == 0 {
            TELLING[self.roll(TELLING.len())]
        } else {
            u8::try_from(self.roll(256)).expect("below 256")
        }
    }
}

/// Calls `check` with `cases` inputs, each one of `seeds` with one to four small changes; it says whether the input was
/// still good. Fails when nearly all or nearly none were, because then the changes showed nothing.
pub(super) fn mutations(seeds: &[&[u8]], cases: usize, mut check: impl FnMut(&[u8], &mut Dice) -> bool) {
    let mut dice = Dice::new(0x5eed);
    let mut good = 0;
    for _ in 0..cases {
        let mut input = seeds[dice.roll(seeds.len())].to_vec();
        for _ in 0..=dice.roll(4) {
            let at = dice.roll(input.len() + 1);
            match dice.roll(5) {
                0 => input.insert(at, dice.byte()),
                1 if at < input.len() => input[at] = dice.byte(),
                2 if at < input.len() => input[at] ^= 1 << dice.roll(8),
                3 => {
                    let end = (at + dice.roll(8)).min(input.len());
                    input.drain(at..end);
                }
                _ => {
                    let end = (at + dice.roll(24)).min(input.len());
                    let piece = input[at..end].to_vec();
                    let to = dice.roll(input.len() + 1);
                    input.splice(to..to, piece);
                }
            }
        }
        good += usize::from(check(&input, &mut dice));
    }
    assert!((cases / 50..cases / 50 * 49).contains(&good), "{good} of {cases} were good");
}

/// Checks that `prefix`, parsed alone, said either nothing yet or what the whole says.
pub(super) fn agree<T: PartialEq + std::fmt::Debug>(prefix: &Progress<T>, whole: &Progress<T>, len: usize) {
    match prefix {
        Progress::Partial => {
            if let Progress::Done(_, used) = whole {
                assert!(*used > len, "done with {used} bytes, but {len} were not enough");
            }
        }
        other => assert_eq!(other, whole),
    }
}
