//! How much memory a process has for itself. Its code is not in it: that grows with the program, and the kernel can take it
//! back at any time.

/// Bytes that are anonymous or shared, now; none once it is gone. Everybody may read that.
pub fn own(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kilobytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    };
    Some((kilobytes("RssAnon")? + kilobytes("RssShmem")?) << 10)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_filled_is_counted() {
        let before = super::own(std::process::id()).expect("it runs");
        let filled = vec![7u8; 32 << 20];
        let after = super::own(std::process::id()).expect("it runs");
        assert!(after > before + (30 << 20), "{before}, {after}, {}", filled[1]);
        assert_eq!(super::own(u32::MAX), None);
    }
}
