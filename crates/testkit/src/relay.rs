//! A relay that judges and records nothing: accept, connect, splice, a thread for each connection. Owns what going through
//! a second process costs at the least on a machine, so that a bench can tell that from what is ours.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

const PIPE: usize = 1 << 20;

/// Serves in threads of its own for as long as the process lives.
pub fn start(to: SocketAddr, threads: usize) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    for _ in 0..threads {
        let listener = listener.try_clone()?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&write, PIPE)?;
        // A connection that fails is its programs' business; what is left in the pipe ends the thread.
        thread::spawn(move || -> io::Result<()> {
            loop {
                let (client, _) = listener.accept()?;
                let server = TcpStream::connect(to)?;
                server.set_nodelay(true)?;
                carry([&client, &server], (&read, &write))?;
            }
        });
    }
    Ok(address)
}

fn carry(ends: [&TcpStream; 2], (read, write): (&OwnedFd, &OwnedFd)) -> io::Result<()> {
    let mut open = [true, true];
    while open != [false, false] {
        let wanted = |index: usize| if open[index] { PollFlags::IN } else { PollFlags::empty() };
        let mut polled = [PollFd::new(ends[0], wanted(0)), PollFd::new(ends[1], wanted(1))];
        poll(&mut polled, None)?;
        let ready = polled.map(|one| !one.revents().is_empty());
        for from in [0, 1] {
            if !ready[from] || !open[from] {
                continue;
            }
            let to = ends[1 - from];
            match splice(ends[from], None, write, None, PIPE, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
                Ok(0) => {
                    open[from] = false;
                    to.shutdown(Shutdown::Write)?;
                }
                Ok(mut left) => {
                    while left > 0 {
                        left -= splice(read, None, to, None, left, SpliceFlags::MOVE)?;
                    }
                }
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
