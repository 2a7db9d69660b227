//! Encodes verdicts as classic BPF: architecture check, opens, x32 check, then a binary search tree over call numbers.
//! Owns nothing but the encoding; a tree keeps installation short, because the kernel interprets the program
//! once per call number to build its allow bitmap (docs/decisions/0002). Called by `seccomp::filter`.

use serde::Serialize;

use crate::seccomp::bits::ModeCheck;
use crate::seccomp::verdict::{Verdict, errno};

/// One classic BPF instruction, as the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
/// Arguments are 64 bits wide, little-endian; the kernel reads `int` arguments from the low half, and so do we.
const fn offset_low(argument: u32) -> u32 {
    16 + 8 * argument
}

/// The ABI of the machine that is built for. Every other one is killed: its numbers mean other calls.
#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xC000_00B7;
/// Numbers of x32, a second ABI under the name of x86_64's. On other machines no call has such a number.
const X32_BIT: u32 = 0x4000_0000;

const RET_KILL_PROCESS: u32 = 0x8000_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;
const RET_ALLOW: u32 = 0x7fff_0000;

/// NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. (NEWTIME is not expressible in clone(2).)
const CLONE_NAMESPACES: u32 =
    0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;
const CLONE_THREAD: u32 = 0x0001_0000;

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
const TIOCSETD: u32 = 0x5423;

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;
const NETLINK_ROUTE: u32 = 0;

/// O_CREAT and what O_TMPFILE has besides O_DIRECTORY: without one of them a mode has no effect.
const MAKES_A_FILE: u32 = 0o100 | 0o20_000_000;

const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;
const PERSONALITY_QUERY: u32 = 0xffff_ffff;

/// Whether the flags of a `clone` ask for a new namespace.
pub(super) fn makes_namespace(flags: u64) -> bool {
    flags & u64::from(CLONE_NAMESPACES) != 0
}

const fn op(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

const fn branch(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

const fn ret(k: u32) -> Instruction {
    op(RETURN, k)
}

/// `verdicts` is indexed by call number; `beyond` answers for every number past its end.
pub(super) fn compile(verdicts: &[Verdict], beyond: Verdict) -> Vec<Instruction> {
    let mut program = vec![
        op(LOAD_WORD, OFFSET_ARCH),
        branch(JUMP_EQUAL, AUDIT_ARCH, 1, 0),
        ret(RET_KILL_PROCESS),
        op(LOAD_WORD, OFFSET_NUMBER),
    ];
    let mut rest = verdicts.to_vec();
    for (number, check) in opens(verdicts) {
        let leaf = mode_leaf(check);
        program.push(branch(JUMP_EQUAL, number, 0, u8::try_from(leaf.len()).unwrap_or(u8::MAX)));
        program.extend(leaf);
        // The tree is never asked about it: one range less.
        let at = number as usize;
        rest[at] = if at == 0 { beyond } else { rest[at - 1] };
    }
    program.extend([branch(JUMP_GREATER_EQUAL, X32_BIT, 0, 1), ret(RET_KILL_PROCESS)]);
    let mut reversed = Vec::with_capacity(512);
    push_tree(&ranges(&rest, beyond), &mut reversed);
    program.extend(reversed.into_iter().rev());
    program
}

/// Opens, the most frequent of the calls at which the kernel has to run the program: they are compared before the tree. The
/// C library's `openat` comes first.
fn opens(verdicts: &[Verdict]) -> Vec<(u32, ModeCheck)> {
    let opens = (0u32..).zip(verdicts).filter_map(|(number, verdict)| match verdict {
        Verdict::Mode(check) if check.flags.is_some() => Some((number, *check)),
        _ => None,
    });
    let mut opens: Vec<_> = opens.collect();
    opens.reverse();
    opens
}

/// Runs of equal verdicts as (first number, verdict); the last run extends to infinity.
fn ranges(verdicts: &[Verdict], beyond: Verdict) -> Vec<(u32, Verdict)> {
    let mut ranges: Vec<(u32, Verdict)> = Vec::new();
    for (number, verdict) in (0u32..).zip(verdicts.iter().chain([&beyond])) {
        if ranges.last().is_none_or(|(_, last)| last != verdict) {
            ranges.push((number, *verdict));
        }
    }
    ranges
}

/// Appends the tree backwards, last instruction first: a jump's distance is known once what it skips is there.
fn push_tree(ranges: &[(u32, Verdict)], reversed: &mut Vec<Instruction>) {
    if let [(_, verdict)] = ranges {
        push_leaf(*verdict, reversed);
        return;
    }
    let (left, right) = ranges.split_at(ranges.len() / 2);
    let Some((pivot, _)) = right.first() else { return };
    push_tree(right, reversed);
    let before = reversed.len();
    push_tree(left, reversed);
    let distance = reversed.len() - before;
    if let Ok(near) = u8::try_from(distance) {
        reversed.push(branch(JUMP_GREATER_EQUAL, *pivot, near, 0));
    } else {
        // Conditional jumps reach 255 instructions; farther goes through an unconditional one.
        reversed.push(op(JUMP, u32::try_from(distance).unwrap_or(u32::MAX)));
        reversed.push(branch(JUMP_GREATER_EQUAL, *pivot, 0, 1));
    }
}

fn push_leaf(verdict: Verdict, reversed: &mut Vec<Instruction>) {
    let errno = |value: u16| ret(RET_ERRNO | u32::from(value));
    let mut push = |instructions: &[Instruction]| reversed.extend(instructions.iter().rev());
    match verdict {
        Verdict::Allow => push(&[ret(RET_ALLOW)]),
        Verdict::Errno(value) => push(&[errno(value)]),
        Verdict::Notify => push(&[ret(RET_USER_NOTIF)]),
        Verdict::Clone => push(&[
            op(LOAD_WORD, offset_low(0)),
            branch(JUMP_SET, CLONE_NAMESPACES, 0, 1),
            ret(RET_USER_NOTIF),
            ret(RET_ALLOW),
        ]),
        Verdict::CloneThreadOnly => push(&[
            op(LOAD_WORD, offset_low(0)),
            branch(JUMP_SET, CLONE_NAMESPACES, 1, 0),
            branch(JUMP_SET, CLONE_THREAD, 1, 0),
            ret(RET_USER_NOTIF),
            ret(RET_ALLOW),
        ]),
        Verdict::Ioctl => push(&[
            op(LOAD_WORD, offset_low(1)),
            branch(JUMP_EQUAL, TIOCSTI, 3, 0),
            branch(JUMP_EQUAL, TIOCLINUX, 2, 0),
            branch(JUMP_EQUAL, TIOCSETD, 1, 0),
            ret(RET_ALLOW),
            ret(RET_USER_NOTIF),
        ]),
        Verdict::Socket { internet } => push(&socket_leaf(internet)),
        Verdict::SocketPair => push(&[
            op(LOAD_WORD, offset_low(0)),
            branch(JUMP_EQUAL, AF_UNIX, 0, 1),
            ret(RET_ALLOW),
            ret(RET_USER_NOTIF),
        ]),
        Verdict::Personality { debug } => push(&personality_leaf(debug)),
        Verdict::Mode(check) => push(&mode_leaf(check)),
    }
}

fn socket_leaf(internet: bool) -> [Instruction; 10] {
    let refused = ret(RET_USER_NOTIF);
    let inet = if internet { ret(RET_ALLOW) } else { refused };
    [
        op(LOAD_WORD, offset_low(0)),
        branch(JUMP_EQUAL, AF_UNIX, 7, 0),
        branch(JUMP_EQUAL, AF_INET, 5, 0),
        branch(JUMP_EQUAL, AF_INET6, 4, 0),
        branch(JUMP_EQUAL, AF_NETLINK, 0, 2),
        op(LOAD_WORD, offset_low(2)),
        branch(JUMP_EQUAL, NETLINK_ROUTE, 2, 0),
        refused,
        inet,
        ret(RET_ALLOW),
    ]
}

fn personality_leaf(debug: bool) -> [Instruction; 6] {
    // A debugger turns address randomisation off; nothing else has a use for execution domains.
    let mask = if debug { !ADDR_NO_RANDOMIZE } else { !0 };
    [
        op(LOAD_WORD, offset_low(0)),
        branch(JUMP_EQUAL, PERSONALITY_QUERY, 2, 0),
        op(AND, mask),
        branch(JUMP_EQUAL, 0, 0, 1),
        ret(RET_ALLOW),
        ret(RET_ERRNO | u32::from(errno::EPERM)),
    ]
}

fn mode_leaf(check: ModeCheck) -> Vec<Instruction> {
    let refused = ret(if check.is_reported { RET_USER_NOTIF } else { RET_ERRNO | u32::from(errno::EPERM) });
    let otherwise = ret(if check.is_gated { RET_USER_NOTIF } else { RET_ALLOW });
    let mut leaf = Vec::new();
    if let Some(flags) = check.flags {
        leaf.extend([op(LOAD_WORD, offset_low(flags)), branch(JUMP_SET, MAKES_A_FILE, 0, 2)]);
    }
    leaf.extend([op(LOAD_WORD, offset_low(check.mode)), branch(JUMP_SET, check.bits, 1, 0), otherwise, refused]);
    leaf
}
