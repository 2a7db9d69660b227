//! Names that carry data instead of naming a host.
//! Owns the guess and its constants; rates and what follows from a guess are `names::dns_server`'s. Only names that the policy
//! allows get this far, so it is a second line against tunnels under an allowed domain, and errs towards letting pass.

/// The most labels outside of reverse lookups, which spell an address out digit by digit. Real names have up to ten.
const LABELS_MAX: usize = 16;
/// The longest name. The longest real ones, of load balancers and storage accounts, stay below 130.
const NAME_MAX: usize = 190;
/// Labels shorter than this are words and ids, whatever they look like.
const LONG_LABEL: usize = 20;
/// How many bits the long labels may hold together. A digest of 40 hexadecimal digits has about 150, a base32 content
/// id of 59 letters about 270, and two digests side by side about 300; tunnels fill names with 600 and more.
const BITS_MAX: f64 = 380.0;

/// Whether a canonical name looks like one that data was put into.
///
/// It does when it is far longer or deeper than names of hosts are, or when its long labels together look random and
/// hold more than content ids do. What sends little per name is not caught here, but by limits on how many names.
pub(crate) fn looks_tunnelled(name: &str) -> bool {
    if name.ends_with(".ip6.arpa") || name.ends_with(".in-addr.arpa") {
        return name.len() > NAME_MAX;
    }
    let bits: f64 = name.split('.').filter(|label| label.len() >= LONG_LABEL).map(bits_in).sum();
    name.len() > NAME_MAX || name.split('.').count() > LABELS_MAX || bits > BITS_MAX
}

/// Shannon's entropy of the label's letters, times its length.
fn bits_in(label: &str) -> f64 {
    let mut counts = [0_u16; 256];
    for byte in label.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let length = label.bytes().fold(0.0, |length, _| length + 1.0);
    counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count) * (length / f64::from(count)).log2()).sum()
}
