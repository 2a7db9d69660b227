//! One guest under QEMU: the programs it takes, their options, their end. Owns the processes: none outlives the run,
//! neither a guest that hangs nor an interrupted rig leaves one. What the guest does is its scripts' business.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::problems::Problems;
use crate::vm::emulator::Emulator;
use crate::vm::files::cannot;
use crate::vm::tool;

const MEMORY: &str = "2G";
/// Room for the results that the guest hands over.
const TAPE_SIZE: u64 = 256 << 20;

const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

// Files in the directory of a guest.
pub(crate) const CONSOLE: &str = "console.log";
const SOCKET: &str = "share.sock";
const TAPE: &str = "tape";
const SHARE_LOG: &str = "share.log";
const QEMU_LOG: &str = "qemu.log";

#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) emulator: &'a Emulator,
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) disk: &'a Path,
    /// Whether what the guest writes stays on the image.
    pub(crate) keeps: bool,
    pub(crate) patience: Duration,
}

/// How a guest ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It switched itself off.
    Off,
    Hung,
    /// Its power was cut.
    Cut,
}

impl Machine<'_> {
    /// Boots, waits for the end, and leaves in `dir` what the guest wrote: the console and the results.
    pub(crate) fn run(&self, dir: &Path) -> Result<End, Problems> {
        let end = self.run_until(dir, |_| false)?;
        let tape = dir.join(TAPE);
        // A guest that did not come as far has an empty tape, and tar nothing to say about it.
        tool(Command::new("tar").arg("-xf").arg(&tape).arg("-C").arg(dir))?;
        fs::remove_file(&tape).map_err(|e| cannot("remove", &tape, &e))?;
        Ok(end)
    }

    /// The same without the results; the power is cut when the console says what `is_over` waits for.
    pub(crate) fn run_until(&self, dir: &Path, mut is_over: impl FnMut(&str) -> bool) -> Result<End, Problems> {
        let mut share = self.share(dir)?;
        wait_for_socket(dir, &mut share)?;
        let tape = dir.join(TAPE);
        File::create(&tape).and_then(|file| file.set_len(TAPE_SIZE)).map_err(|e| cannot("make", &tape, &e))?;
        watch(Program::start(dir, QEMU_LOG, self.qemu())?, dir, self.patience, &mut is_over)
    }

    /// The tree of this machine, read-only.
    fn share(&self, dir: &Path) -> Result<Program, Problems> {
        let options = "--shared-dir / --readonly --sandbox none --cache always --no-announce-submounts --socket-path";
        let mut command = Vec::from(self.emulator.command(self.emulator.virtiofsd()));
        command.extend(options.split(' ').map(OsString::from));
        command.push(SOCKET.into());
        Program::start(dir, SHARE_LOG, command)
    }

    fn qemu(&self) -> Vec<OsString> {
        let fixed = [
            // Without five levels of page tables: in software, each costs.
            "-accel tcg,thread=multi -cpu max,la57=off -smp 2 -nodefaults -display none -no-reboot -nic none",
            &format!("-machine q35,memory-backend=memory -m {MEMORY}"),
            // virtiofsd reads and writes the guest's memory.
            &format!("-object memory-backend-memfd,id=memory,share=on,size={MEMORY}"),
            &format!("-chardev socket,id=share,path={SOCKET} -device vhost-user-fs-pci,chardev=share,tag=host"),
            &format!("-serial file:{CONSOLE}"),
        ];
        let mut command = Vec::from(self.emulator.command(self.emulator.qemu()));
        command.extend(fixed.iter().flat_map(|line| line.split(' ')).map(OsString::from));
        for firmware in self.emulator.firmware() {
            command.extend(["-L".into(), firmware.into()]);
        }
        command.extend(["-kernel".into(), self.kernel.into(), "-initrd".into(), self.initramfs.into()]);
        // Emulated on a busy machine the timer misses the kernel's check of it, and the kernel panics.
        command.extend(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"].map(OsString::from));
        // Guests share an image: writes go to a file that QEMU has deleted already.
        let snapshot = if self.keeps { "" } else { ",snapshot=on" };
        command.extend(drive("disk", &format!("{}{snapshot}", self.disk.display())));
        command.extend(drive("tape", TAPE));
        command
    }
}

/// A machine that shares nothing with this one and has no disk: its first file system is all that it has, its console all that
/// it says.
pub(crate) fn run_aarch64(
    emulator: &Emulator,
    (kernel, initramfs): (&Path, &Path),
    dir: &Path,
    patience: Duration,
) -> Result<End, Problems> {
    // The architecture's own algorithm for signed pointers is half of the time in software.
    let fixed =
        "-accel tcg,thread=multi -machine virt -cpu max,pauth-impdef=on -smp 2 -nodefaults -display none -no-reboot";
    let mut command = Vec::from(emulator.command(emulator.qemu()));
    command.extend(fixed.split(' ').map(OsString::from));
    command.extend(["-m", MEMORY, "-serial", &format!("file:{CONSOLE}")].map(OsString::from));
    command.extend(["-kernel".into(), kernel.into(), "-initrd".into(), initramfs.into()]);
    command.extend(["-append", "console=ttyAMA0 quiet panic=-1"].map(OsString::from));
    watch(Program::start(dir, QEMU_LOG, command)?, dir, patience, &mut |_| false)
}

/// Waits for the end of a guest, or for what `is_over` waits for on its console.
fn watch(
    mut qemu: Program,
    dir: &Path,
    patience: Duration,
    is_over: &mut dyn FnMut(&str) -> bool,
) -> Result<End, Problems> {
    let deadline = Instant::now() + patience;
    loop {
        if qemu.ended()? {
            return Ok(End::Off);
        }
        if Instant::now() > deadline {
            return Ok(End::Hung);
        }
        // Not there before QEMU has opened it, and its last character may be in halves.
        let console = fs::read(dir.join(CONSOLE)).unwrap_or_default();
        if is_over(&String::from_utf8_lossy(&console)) {
            return Ok(End::Cut);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

fn drive(id: &str, file: &str) -> [OsString; 4] {
    let drive = format!("if=none,id={id},format=raw,file={file}");
    ["-drive".into(), drive.into(), "-device".into(), format!("virtio-blk-pci,drive={id}").into()]
}

/// A program that is killed when the rig is done with it. `setpriv` has the kernel do it when the rig dies first: a
/// signal at the death of the thread that started it, which is the one that waits for it.
struct Program(Child);

impl Program {
    /// In `dir`: the path of a socket must be short, so programs get it without the directory.
    fn start(dir: &Path, output: &str, command: Vec<OsString>) -> Result<Program, Problems> {
        let output = dir.join(output);
        let file = File::create(&output).map_err(|e| cannot("write", &output, &e))?;
        let again = file.try_clone().map_err(|e| cannot("write", &output, &e))?;
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--pdeathsig", "KILL"]).args(command).current_dir(dir);
        let child = setpriv.stdin(Stdio::null()).stdout(file).stderr(again).spawn();
        child.map(Program).map_err(|e| Problems::one(format!("cannot run setpriv: {e}")))
    }

    fn ended(&mut self) -> Result<bool, Problems> {
        let status = self.0.try_wait().map_err(|e| Problems::one(format!("cannot wait for a program: {e}")))?;
        Ok(status.is_some())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Either may fail because it has ended by itself, which is what is wanted.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn wait_for_socket(dir: &Path, share: &mut Program) -> Result<(), Problems> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !dir.join(SOCKET).exists() {
        if share.ended()? || Instant::now() > deadline {
            let said = fs::read_to_string(dir.join(SHARE_LOG)).unwrap_or_default();
            return Err(Problems::one(format!("virtiofsd does not start: {}", said.trim())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
