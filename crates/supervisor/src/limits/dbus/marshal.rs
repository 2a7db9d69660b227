//! The few D-Bus types that a call to the service manager needs, as bytes, and the heads of answers. Owns alignment and
//! the distrust of every length that comes from outside; sends nothing. Called by `dbus` and `systemd_scope`.

/// Far more than any answer to us; an error's text is the longest part.
pub(super) const MOST: usize = 32 * 1024;
/// What precedes the header's fields.
pub(super) const START: usize = 16;

const LITTLE_ENDIAN: u8 = b'l';
const VERSION: u8 = 1;
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
/// A manager that does not run is not to be started for us.
pub(crate) const NO_AUTO_START: u8 = 2;

mod field {
    pub(super) const PATH: u8 = 1;
    pub(super) const INTERFACE: u8 = 2;
    pub(super) const MEMBER: u8 = 3;
    pub(super) const ERROR_NAME: u8 = 4;
    pub(super) const REPLY_SERIAL: u8 = 5;
    pub(super) const DESTINATION: u8 = 6;
    pub(super) const SIGNATURE: u8 = 8;
}

/// Values in the order in which they are written, each aligned as its type demands.
#[derive(Debug, Default)]
pub(crate) struct Values(Vec<u8>);

impl Values {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(crate) fn number(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn flag(&mut self, value: bool) {
        self.number(u32::from(value));
    }

    /// A string or the path of an object.
    pub(crate) fn string(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn length(&mut self, length: usize) {
        self.number(u32::try_from(length).unwrap_or(u32::MAX));
    }

    /// A value that says its own type.
    pub(crate) fn variant(&mut self, signature: &str, write: impl FnOnce(&mut Values)) {
        self.signature(signature);
        write(self);
    }

    /// `alignment` is that of one element; the gap before the first does not count as content.
    pub(crate) fn array(&mut self, alignment: usize, write: impl FnOnce(&mut Values)) {
        self.number(0);
        let at = self.0.len() - 4;
        self.align(alignment);
        let first = self.0.len();
        write(self);
        let length = u32::try_from(self.0.len() - first).unwrap_or(u32::MAX);
        self.0[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    pub(crate) fn structure(&mut self, write: impl FnOnce(&mut Values)) {
        self.align(8);
        write(self);
    }
}

/// One call of a method.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) destination: &'a str,
    pub(crate) path: &'a str,
    pub(crate) interface: &'a str,
    pub(crate) member: &'a str,
    pub(crate) signature: &'a str,
    pub(crate) body: Values,
}

impl Call<'_> {
    pub(crate) fn encode(&self, serial: u32) -> Vec<u8> {
        let mut message = Values(vec![LITTLE_ENDIAN, METHOD_CALL, NO_AUTO_START, VERSION]);
        message.length(self.body.0.len());
        message.number(serial);
        let fields = [
            (field::PATH, "o", self.path),
            (field::MEMBER, "s", self.member),
            (field::INTERFACE, "s", self.interface),
            (field::DESTINATION, "s", self.destination),
        ];
        message.array(8, |list| {
            for (code, signature, text) in fields {
                list.structure(|entry| {
                    entry.0.push(code);
                    entry.variant(signature, |value| value.string(text));
                });
            }
            if !self.signature.is_empty() {
                list.structure(|entry| {
                    entry.0.push(field::SIGNATURE);
                    entry.variant("g", |value| value.signature(self.signature));
                });
            }
        });
        message.align(8);
        message.0.extend(&self.body.0);
        message.0
    }
}

/// What a message from the bus is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Return {
        to: u32,
    },
    Error {
        to: u32,
        name: String,
        text: String,
    },
    /// A signal, for example.
    Other,
}

/// How long the message is that starts so; none if it is no message or too long for us.
pub(super) fn length(start: &[u8; START]) -> Option<usize> {
    let [LITTLE_ENDIAN, _, _, VERSION, ..] = start else { return None };
    let mut reader = Reader { bytes: start, at: 4 };
    let body = usize::try_from(reader.number()?).ok()?;
    reader.number()?;
    let fields = usize::try_from(reader.number()?).ok()?;
    (body <= MOST && fields <= MOST).then(|| START + fields.next_multiple_of(8) + body)
}

/// Reads one whole message; none if it is malformed.
pub(super) fn decode(message: &[u8]) -> Option<Answer> {
    let kind = *message.get(1)?;
    let mut reader = Reader { bytes: message, at: START - 4 };
    let end = START.checked_add(usize::try_from(reader.number()?).ok()?)?;
    let mut fields = Reader { bytes: message.get(..end)?, at: START };
    let (mut to, mut name, mut body) = (None, "", "");
    while fields.at < end {
        fields.align(8)?;
        let code = fields.byte()?;
        match (code, fields.signature()?) {
            (field::REPLY_SERIAL, "u") => to = Some(fields.number()?),
            (field::ERROR_NAME, "s") => name = fields.string()?,
            (field::SIGNATURE, "g") => body = fields.signature()?,
            (_, "s" | "o") => drop(fields.string()?),
            (_, "g") => drop(fields.signature()?),
            (_, "u") => drop(fields.number()?),
            _ => return None,
        }
    }
    match (kind, to) {
        (METHOD_RETURN, Some(to)) => Some(Answer::Return { to }),
        (ERROR, Some(to)) => {
            let mut reader = Reader { bytes: message, at: end };
            reader.align(8)?;
            let text = if body.starts_with('s') { reader.string()? } else { "" };
            Some(Answer::Error { to, name: name.to_owned(), text: text.to_owned() })
        }
        (METHOD_RETURN | ERROR, None) => None,
        _ => Some(Answer::Other),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn align(&mut self, to: usize) -> Option<()> {
        let gap = self.at.next_multiple_of(to) - self.at;
        self.take(gap).map(drop)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self) -> Option<u32> {
        self.align(4)?;
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn string(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        self.text(length)
    }

    fn signature(&mut self) -> Option<&'a str> {
        let length = usize::from(self.byte()?);
        self.text(length)
    }

    fn text(&mut self, length: usize) -> Option<&'a str> {
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        (self.byte()? == 0).then_some(text)
    }
}
