//! The unsafe calls. Owns nothing else: each function wraps one system call, and says why its pointers are good.
//! Called by the safe modules of this crate only.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use dlmalloc::Dlmalloc;
use rustix::io::Errno;

type Result<T> = std::result::Result<T, Errno>;

fn check(ret: libc::c_long) -> Result<libc::c_long> {
    if ret < 0 { Err(last_errno()) } else { Ok(ret) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// `struct clone_args`, as far as clone3 of Linux 5.7 reads it.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The parent gets pid and pidfd, the child gets `None`.
pub(crate) fn clone3(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Option<(i32, OwnedFd)>> {
    let mut pidfd: RawFd = -1;
    let into = cgroup.map_or(0, |_| CLONE_INTO_CGROUP);
    let args = CloneArgs {
        flags: flags | into | libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: cgroup.map_or(0, |fd| u64::from(fd.as_raw_fd().cast_unsigned())),
        ..CloneArgs::default()
    };
    // SAFETY: `args` outlives the call and its size is passed; without CLONE_VM and without a stack the child runs on a
    // copy of this memory, so no Rust value is shared. `pidfd` is written by the kernel in the parent only.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) })?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: CLONE_PIDFD stored a new descriptor, owned by no other value.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Some((i32::try_from(pid).map_err(|_| Errno::OVERFLOW)?, pidfd)))
}

/// The parent gets the pid, the child gets `None`.
pub(crate) fn fork() -> Result<Option<i32>> {
    // SAFETY: the supervisor is single-threaded (it starts no runtime), so the child inherits no lock held by another thread.
    let pid = check(libc::c_long::from(unsafe { libc::fork() }))?;
    Ok(if pid == 0 { None } else { Some(i32::try_from(pid).map_err(|_| Errno::OVERFLOW)?) })
}

pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any integer and does not return.
    unsafe { libc::_exit(code) }
}

#[repr(C)]
pub(crate) struct MountAttr {
    pub(crate) attr_set: u64,
    pub(crate) attr_clr: u64,
    pub(crate) propagation: u64,
    pub(crate) userns_fd: u64,
}

pub(crate) fn mount_setattr(mount: BorrowedFd<'_>, flags: u32, attr: &MountAttr) -> Result<()> {
    // SAFETY: the path is an empty C string, `attr` is borrowed for the call and its size is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}

pub(crate) fn execve(path: &CStr, argv: &[CString], envp: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    // SAFETY: both arrays end with a null pointer and point into strings that outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    last_errno()
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SockFilter {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

#[repr(C)]
struct SockFprog {
    len: u16,
    filter: *const SockFilter,
}

/// Returns the listener if `flags` asks for one.
pub(crate) fn seccomp_set_filter(program: &[SockFilter], flags: u64) -> Result<i64> {
    let program = SockFprog { len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?, filter: program.as_ptr() };
    // SAFETY: `program` points to `len` instructions that are borrowed for the call; the kernel copies them.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) })
}

pub(crate) fn own_fd(fd: i64) -> Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: called only with a descriptor that a system call has just returned to this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct SeccompNotif {
    pub(crate) id: u64,
    pub(crate) pid: u32,
    pub(crate) flags: u32,
    pub(crate) nr: i32,
    pub(crate) arch: u32,
    pub(crate) instruction_pointer: u64,
    pub(crate) args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
pub(crate) struct SeccompNotifResp {
    pub(crate) id: u64,
    pub(crate) val: i64,
    pub(crate) error: i32,
    pub(crate) flags: u32,
}

const NOTIF_RECV: u64 = 0xc050_2100;
const NOTIF_SEND: u64 = 0xc018_2101;
const NOTIF_ID_VALID: u64 = 0x4008_2102;

pub(crate) fn notif_recv(listener: BorrowedFd<'_>) -> Result<SeccompNotif> {
    let mut notif = SeccompNotif::default();
    // SAFETY: the kernel writes at most sizeof(struct seccomp_notif), 80 bytes, which is the layout above, zeroed as it demands.
    check(libc::c_long::from(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV as _, &raw mut notif) }))?;
    Ok(notif)
}

pub(crate) fn notif_send(listener: BorrowedFd<'_>, response: &SeccompNotifResp) -> Result<()> {
    // SAFETY: the kernel reads sizeof(struct seccomp_notif_resp), 24 bytes, from a borrowed value of that layout.
    check(libc::c_long::from(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND as _, ptr::from_ref(response)) }))?;
    Ok(())
}

pub(crate) fn notif_is_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads eight bytes from a borrowed value of that size.
    check(libc::c_long::from(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ID_VALID as _, &raw const id) })).is_ok()
}

/// Drops capability `number` from the bounding set; `false` once the kernel knows no such capability.
pub(crate) fn drop_bounding(number: u32) -> Result<bool> {
    // SAFETY: no pointers.
    match check(libc::c_long::from(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) }))
    {
        Ok(_) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno),
    }
}

pub(crate) fn set_interface_up(socket: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    // SAFETY: ifreq is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.iter().take(libc::IFNAMSIZ - 1)) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads one ifreq from a live value.
    check(libc::c_long::from(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) }))?;
    Ok(())
}

/// An option of a socket that is a number.
pub(crate) fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> Result<()> {
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads `length` bytes from a live value of that size.
    check(libc::c_long::from(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length)
    }))?;
    Ok(())
}

/// Room for one IPv6 packet-information message, as the kernel aligns it.
#[repr(C, align(8))]
struct PacketInfo([u8; 64]);

/// A datagram of an IPv6 socket that tells packet information: (length, sender, the address it was sent to).
pub(crate) fn receive_datagram(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, SocketAddrV6, Option<Ipv6Addr>)> {
    // SAFETY: plain old data for which all zeroes is a valid value.
    let mut from: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut control = PacketInfo([0; 64]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: as above; some libcs have padding fields that cannot be named.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = libc::socklen_t::try_from(size_of::<libc::sockaddr_in6>()).map_err(|_| Errno::INVAL)?;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer in the header is to a live value of the length beside it.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let length = check(length as libc::c_long)?;
    let mut to = None;
    // SAFETY: the kernel has filled the control buffer and set its length; the macros stay within it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::IPPROTO_IPV6 && (*header).cmsg_type == libc::IPV6_PKTINFO {
                let info: libc::in6_pktinfo = ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr));
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let port = u16::from_be(from.sin6_port);
    let address = if libc::c_int::from(from.sin6_family) == libc::AF_INET {
        // A socket of IPv4: the port stands at the same place, and the address where the flow would.
        Ipv4Addr::from(from.sin6_flowinfo.to_ne_bytes()).to_ipv6_mapped()
    } else {
        Ipv6Addr::from(from.sin6_addr.s6_addr)
    };
    let from = SocketAddrV6::new(address, port, 0, 0);
    Ok((usize::try_from(length).unwrap_or_default(), from, to))
}

/// The answer to one, from the address that it was sent to.
pub(crate) fn send_datagram(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddrV6,
    from: Option<Ipv6Addr>,
) -> Result<()> {
    // SAFETY: plain old data for which all zeroes is a valid value.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    name.sin6_family = libc::sa_family_t::try_from(libc::AF_INET6).map_err(|_| Errno::INVAL)?;
    name.sin6_port = to.port().to_be();
    name.sin6_addr.s6_addr = to.ip().octets();
    let mut control = PacketInfo([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: as above.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = libc::socklen_t::try_from(size_of::<libc::sockaddr_in6>()).map_err(|_| Errno::INVAL)?;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if let Some(from) = from {
        let size = u32::try_from(size_of::<libc::in6_pktinfo>()).map_err(|_| Errno::INVAL)?;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the buffer has room for one message of this size, and the macros stay within the length set here.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::IPPROTO_IPV6;
            (*header).cmsg_type = libc::IPV6_PKTINFO;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            let mut info: libc::in6_pktinfo = std::mem::zeroed();
            info.ipi6_addr.s6_addr = from.octets();
            ptr::write_unaligned(libc::CMSG_DATA(header).cast(), info);
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: every pointer in the header is to a live value of the length beside it; the kernel only reads.
    check(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) } as libc::c_long)?;
    Ok(())
}

pub(crate) fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with the version flag the kernel demands a null attribute and size 0.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Who made the other end of a connection, as seen from here: (pid, uid).
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Result<(i32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the live value, and the length itself.
    check(libc::c_long::from(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    }))?;
    Ok((peer.pid, peer.uid))
}

/// The process that made the other end of a connection (Linux 6.5).
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    // Not in every libc yet; the same on all architectures that we build for.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the live value, and the length itself.
    check(libc::c_long::from(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &raw mut length)
    }))?;
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the kernel has just made this descriptor for us, and no other code of this process knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn all_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain old data; sigfillset initialises it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        set
    }
}

pub(crate) fn block_all_signals() -> Result<()> {
    let set = all_signals();
    // SAFETY: `set` is initialised and borrowed for the call.
    match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Default dispositions and an empty mask: what a program expects to find after exec.
pub(crate) fn reset_signals() -> Result<()> {
    for signal in 1..=64 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP && !(32..=34).contains(&signal) {
            // SAFETY: SIG_DFL is a valid disposition for every signal but the two left out (32-34 belong to libc).
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    // SAFETY: sigset_t is plain old data; sigemptyset initialises it.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        set
    };
    // SAFETY: `set` is initialised and borrowed for the call.
    match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Waits for any blocked signal: (number, sending pid as seen from here).
pub(crate) fn wait_for_signal() -> Result<(i32, i32)> {
    let set = all_signals();
    // SAFETY: siginfo_t is plain old data; the kernel fills it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values.
    let signal = unsafe { libc::sigwaitinfo(&raw const set, &raw mut info) };
    if signal < 0 {
        return Err(last_errno());
    }
    // SAFETY: si_pid is at the same place for every signal that has a sender and reads as zero otherwise.
    Ok((signal, unsafe { info.si_pid() }))
}

/// A non-blocking descriptor that reports all signals.
pub(crate) fn signal_fd() -> Result<OwnedFd> {
    let set = all_signals();
    // SAFETY: `set` is initialised and borrowed for the call.
    own_fd(check(libc::c_long::from(unsafe {
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    }))?)
}

/// One page shared with children, zeroed.
pub(crate) fn shared_page() -> Result<&'static [std::sync::atomic::AtomicU64]> {
    const SIZE: usize = 4096;
    // SAFETY: an anonymous shared mapping has no preconditions.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(last_errno());
    }
    // SAFETY: the mapping is page-aligned, zeroed, never unmapped, and accessed as atomics by every process that shares it.
    Ok(unsafe { std::slice::from_raw_parts(page.cast(), SIZE / size_of::<u64>()) })
}

/// Closes every descriptor from `first` to `last`, open or not.
pub(crate) fn close_between(first: u32, last: u32) -> Result<()> {
    // SAFETY: no pointers; the caller uses none of these any more.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) })?;
    Ok(())
}

/// Closes every descriptor from `first` on, or only marks them to close at exec.
pub(crate) fn close_from(first: u32, at_exec: bool) -> Result<()> {
    let flags: u32 = if at_exec { libc::CLOSE_RANGE_CLOEXEC } else { 0 };
    // SAFETY: no pointers. The caller holds no owned descriptor in the range that it will use or drop afterwards.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) })?;
    Ok(())
}

/// A copy of a descriptor by its number, closed at exec; the number itself stays open for a standard stream alone.
pub(crate) fn take_inherited(number: i32) -> Result<OwnedFd> {
    // SAFETY: no pointers; a number that is not open is an error.
    let copy = own_fd(check(libc::c_long::from(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) }))?)?;
    if let Some(own) = u32::try_from(number).ok().filter(|number| *number > 2) {
        close_between(own, own)?;
    }
    Ok(copy)
}

pub(crate) fn replace_environment(variables: &[(String, String)]) {
    // SAFETY: called before any thread is started, so no other one reads the environment meanwhile.
    unsafe {
        for (name, _) in std::env::vars_os() {
            std::env::remove_var(name);
        }
        for (name, value) in variables {
            std::env::set_var(name, value);
        }
    }
}

/// Whether the kernel started this program with more rights than its caller has (set-user-ID, file capabilities).
pub(crate) fn is_secure_exec() -> bool {
    // SAFETY: no pointers; an absent entry reads as 0.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

pub(crate) fn kill_all() -> Result<()> {
    // SAFETY: no pointers.
    check(libc::c_long::from(unsafe { libc::kill(-1, libc::SIGKILL) }))?;
    Ok(())
}

pub(crate) fn unshare_network() -> Result<()> {
    // SAFETY: no pointers; a new network namespace leaves descriptors and memory of this process as they are.
    check(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_NEWNET) }))?;
    Ok(())
}

/// What this process's ended and collected children used, and theirs.
pub(crate) fn usage_of_children() -> Result<libc::rusage> {
    // SAFETY: rusage is plain integers, for which zero is a value; the kernel fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        check(libc::c_long::from(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage)))?;
        Ok(usage)
    }
}

pub(crate) fn unshare(flags: u64) -> Result<()> {
    let flags = libc::c_int::try_from(flags).map_err(|_| Errno::INVAL)?;
    // SAFETY: unshare takes an integer; callers pass flags that share no memory of this process (namespaces).
    check(libc::c_long::from(unsafe { libc::unshare(flags) }))?;
    Ok(())
}

const NS_GET_USERNS: libc::Ioctl = 0xb701u32 as libc::Ioctl;

pub(crate) fn owner_of_namespace(namespace: BorrowedFd<'_>) -> Result<OwnedFd> {
    // SAFETY: the request takes no argument and returns a new descriptor.
    own_fd(check(libc::c_long::from(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) }))?)
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581fu32 as libc::Ioctl;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820u32 as libc::Ioctl;

/// Moves a directory to a project and adds `flags` to its attributes.
pub(crate) fn set_project(directory: BorrowedFd<'_>, project: u32, flags: u32) -> Result<()> {
    let mut attributes = FileAttributes::default();
    let fd = directory.as_raw_fd();
    // SAFETY: the request reads and writes one `FileAttributes`, which outlives both calls.
    unsafe {
        check(libc::c_long::from(libc::ioctl(fd, FS_IOC_FSGETXATTR, &raw mut attributes)))?;
        attributes.project = project;
        attributes.flags |= flags;
        check(libc::c_long::from(libc::ioctl(fd, FS_IOC_FSSETXATTR, &raw const attributes)))?;
    }
    Ok(())
}

/// The parts of `struct if_dqblk` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Quota {
    pub(crate) blocks: u64,
    pub(crate) files: u64,
    pub(crate) used: u64,
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Default)]
struct DiskQuota {
    block_hard: u64,
    block_soft: u64,
    space: u64,
    file_hard: u64,
    file_soft: u64,
    files: u64,
    block_time: u64,
    file_time: u64,
    valid: u32,
}

const PROJECT_QUOTA: u32 = 2;
const Q_GETFMT: u32 = 0x80_0004;
const Q_GETQUOTA: u32 = 0x80_0007;
const Q_SETQUOTA: u32 = 0x80_0008;
/// Both limits are given.
const QUOTA_LIMITS: u32 = 1 | 4;

fn quotactl<T>(directory: BorrowedFd<'_>, command: u32, id: u32, argument: &mut T) -> Result<()> {
    let command = (command << 8) | PROJECT_QUOTA;
    // SAFETY: every command used here reads or writes one value of the type that its only caller passes, which is
    // borrowed for the call.
    check(unsafe {
        libc::syscall(libc::SYS_quotactl_fd, directory.as_raw_fd(), command, id, ptr::from_mut(argument))
    })?;
    Ok(())
}

pub(crate) fn quota_format(directory: BorrowedFd<'_>) -> Result<u32> {
    let mut format = 0u32;
    quotactl(directory, Q_GETFMT, 0, &mut format)?;
    Ok(format)
}

pub(crate) fn quota_get(directory: BorrowedFd<'_>, project: u32) -> Result<Quota> {
    let mut quota = DiskQuota::default();
    quotactl(directory, Q_GETQUOTA, project, &mut quota)?;
    Ok(Quota { blocks: quota.block_hard, files: quota.file_hard, used: quota.space })
}

pub(crate) fn quota_set(directory: BorrowedFd<'_>, project: u32, quota: Quota) -> Result<()> {
    let mut value =
        DiskQuota { block_hard: quota.blocks, file_hard: quota.files, valid: QUOTA_LIMITS, ..DiskQuota::default() };
    quotactl(directory, Q_SETQUOTA, project, &mut value)
}

/// See `memory`.
pub struct Allocator {
    busy: AtomicBool,
    heap: UnsafeCell<Dlmalloc>,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Allocator")
    }
}

// SAFETY: the heap is reached through `with` only, by one thread at a time.
unsafe impl Sync for Allocator {}

impl Default for Allocator {
    fn default() -> Self {
        Allocator::new()
    }
}

impl Allocator {
    pub const fn new() -> Self {
        Allocator { busy: AtomicBool::new(false), heap: UnsafeCell::new(Dlmalloc::new()) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        while self.busy.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: the thread that sets `busy` is alone until it is cleared, and `act` is one call of dlmalloc, which neither
        // allocates by way of this type nor panics.
        let done = act(unsafe { &mut *self.heap.get() });
        self.busy.store(false, Ordering::Release);
        done
    }
}

// SAFETY: every call is dlmalloc's of the same meaning, with the layout that the caller vouches for.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller got `memory` from here with this layout.
        self.with(|heap| unsafe { heap.free(memory, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller got `memory` from here with this layout.
        self.with(|heap| unsafe { heap.realloc(memory, layout.size(), layout.align(), size) })
    }
}
