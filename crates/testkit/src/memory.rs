//! How much memory a process has had for itself. Owns what counts: not its code, which grows with the program and which the
//! kernel can take back at any time.

/// The most bytes that it ever had, without what it has of files now; none once it is gone. Any process may read that.
pub fn own_peak(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kilobytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    };
    Some(kilobytes("VmHWM")?.saturating_sub(kilobytes("RssFile")?) << 10)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_was_filled_is_counted_even_when_it_is_given_back() {
        let before = super::own_peak(std::process::id()).expect("it runs");
        let filled = vec![7u8; 32 << 20];
        assert_eq!(filled[1], 7);
        drop(filled);
        let after = super::own_peak(std::process::id()).expect("it runs");
        assert!(after > before + (30 << 20), "{before}, {after}");
        assert_eq!(super::own_peak(u32::MAX), None);
    }
}
