//! Paths of HTTP requests against the globs of rules. Owns which paths can be read in one way only, and the matching;
//! which rules count is `decide`'s. Called by `decide`.

/// The path as the rules see it, percent-decoded and without query. None where servers could disagree about it.
pub(crate) fn clear(target: &str) -> Option<Vec<u8>> {
    let path = target.split('?').next().unwrap_or(target);
    if !path.starts_with('/') || path.contains('#') {
        return None;
    }
    let decoded = decoded(path)?;
    let mut segments = decoded[1..].split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        // Parameters of a segment are cut off by some servers before dots are resolved.
        let bare = segment.split(|byte| *byte == b';').next().unwrap_or(segment);
        if bare == b"." || bare == b".." || (bare.is_empty() && !(is_last && segment.is_empty())) {
            return None;
        }
    }
    Some(decoded)
}

/// None where an escape is broken, hides a character that has a meaning, or is not needed.
fn decoded(path: &str) -> Option<Vec<u8>> {
    let mut bytes = path.bytes();
    let mut out = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let value = u8::try_from(digit(bytes.next())? << 4 | digit(bytes.next())?).ok()?;
                let needless = value.is_ascii_alphanumeric() || matches!(value, b'-' | b'.' | b'_' | b'~');
                if needless || matches!(value, b'/' | b'\\' | b'%' | b'?' | b'#' | b';') || value.is_ascii_control() {
                    return None;
                }
                out.push(value);
            }
            b'\\' => return None,
            byte if byte.is_ascii_graphic() => out.push(byte),
            _ => return None,
        }
    }
    Some(out)
}

/// Whether one of the globs matches a path that [`clear`] gave. `*` is within a segment, `**` is any number of segments.
pub(crate) fn any_matches(globs: &[String], path: &[u8]) -> bool {
    globs.iter().any(|glob| {
        let glob = clear(glob).unwrap_or_else(|| glob.as_bytes().to_vec());
        let (glob, path) = (segments(&glob), segments(path));
        matches(&glob, &path)
    })
}

fn segments(path: &[u8]) -> Vec<&[u8]> {
    path.strip_prefix(b"/").unwrap_or(path).split(|byte| *byte == b'/').collect()
}

/// `**` stands for one segment or more, so that `/a/**` is not about `/a` itself. Linear in both: the last `**` decides.
fn matches(glob: &[&[u8]], path: &[&[u8]]) -> bool {
    let (mut g, mut p) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while p < path.len() {
        match glob.get(g) {
            Some(&b"**") => {
                retry = Some((g, p));
                (g, p) = (g + 1, p + 1);
            }
            Some(segment) if segment_matches(segment, path[p]) => (g, p) = (g + 1, p + 1),
            _ => match retry {
                Some((star, taken)) => {
                    retry = Some((star, taken + 1));
                    (g, p) = (star + 1, taken + 2);
                    if p > path.len() {
                        return false;
                    }
                }
                None => return false,
            },
        }
    }
    g == glob.len()
}

fn segment_matches(glob: &[u8], segment: &[u8]) -> bool {
    let (mut g, mut s) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while s < segment.len() {
        match glob.get(g) {
            Some(b'*') => {
                retry = Some((g, s));
                g += 1;
            }
            Some(byte) if *byte == segment[s] => (g, s) = (g + 1, s + 1),
            _ => match retry {
                Some((star, taken)) => {
                    retry = Some((star, taken + 1));
                    (g, s) = (star + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}
