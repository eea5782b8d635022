//! The records of a batch, of which nothing is believed: every number and every length is checked before it is used.

#![forbid(unsafe_code)]

const RECORD_BYTES_MIN: usize = 7;
const VARINT_BYTES_MAX: usize = 5;
const VARLONG_BYTES_MAX: usize = 10;
const HEADERS_MAX: i64 = 1_000;
pub const NO_TIMESTAMP: i64 = -1;

/// Bytes that are gone through once, from the front; nothing is given from behind their end.
struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, left) = self.left.split_first()?;
        self.left = left;
        Some(*first)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(length)?;
        self.left = left;
        Some(taken)
    }

    #[inline(always)]
    fn unsigned(&mut self, bytes_max: usize) -> Option<u64> {
        let first = self.byte()?;
        // As most of them are.
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7F);
        for place in 1..bytes_max {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A number of 32 bits.
    fn varint(&mut self) -> Option<i64> {
        let value = self.unsigned(VARINT_BYTES_MAX)?;
        (value <= u64::from(u32::MAX)).then(|| signed(value))
    }

    /// A number of 64 bits; what its tenth byte has beyond them is passed over.
    fn varlong(&mut self) -> Option<i64> {
        self.unsigned(VARLONG_BYTES_MAX).map(signed)
    }

    /// Bytes after their length; the inner None is null.
    fn bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            length => self.take(usize::try_from(length).ok()?).map(Some),
        }
    }
}

fn signed(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// One record, whose parts are views of the batch.
pub struct Record<'a> {
    pub timestamp_ms: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers that a record has left; none of them is looked at before it is asked for.
pub struct Headers<'a> {
    left: &'a [u8],
    count: i64,
}

impl<'a> Headers<'a> {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The next one's name and value. None where its bytes are wrong, or where no header is left.
    pub fn next(&mut self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let mut reader = Reader { left: self.left };
        self.count = Some(self.count - 1).filter(|left| *left >= 0)?;
        let header = (reader.bytes()??, reader.bytes()?);
        self.left = reader.left;
        Some(header)
    }

    /// Whether there are neither headers nor bytes left.
    fn ended(&self) -> bool {
        self.count == 0 && self.left.is_empty()
    }
}

/// What says how the records of a batch are to be read.
#[derive(Clone, Copy)]
pub struct Frame {
    pub rows: usize,
    pub base_ms: i64,
    pub latest_ms: i64,
}

/// Calls `each` with every record in turn.
///
/// None where one is wrong, where `each` says so of one, and where the bytes are not those of so many records. Headers
/// are not looked at here, nor whether a record ends with them.
pub fn walk<'a>(data: &'a [u8], frame: Frame, mut each: impl FnMut(Record<'a>) -> Option<()>) -> Option<()> {
    let times = NO_TIMESTAMP..=frame.latest_ms;
    if frame.rows > data.len() / RECORD_BYTES_MIN || !times.contains(&frame.base_ms) {
        return None;
    }
    let mut reader = Reader { left: data };
    for index in 0..frame.rows {
        let record = record(&mut reader, index, frame.base_ms)?;
        if !times.contains(&record.timestamp_ms) {
            return None;
        }
        each(record)?;
    }
    reader.left.is_empty().then_some(())
}

fn record<'a>(reader: &mut Reader<'a>, index: usize, base_ms: i64) -> Option<Record<'a>> {
    let length = usize::try_from(reader.varint()?).ok()?;
    let mut own = Reader { left: reader.take(length)? };
    own.byte()?;
    let timestamp_ms = base_ms.checked_add(own.varlong()?)?;
    if own.varint()? != i64::try_from(index).ok()? {
        return None;
    }
    let (key, value) = (own.bytes()?, own.bytes()?);
    let count = own.varint()?;
    let headers = Headers { left: own.left, count };
    (0..=HEADERS_MAX).contains(&count).then_some(Record { timestamp_ms, key, value, headers })
}

/// What the columns of a batch take.
#[derive(Clone, Copy, Default)]
pub struct Sizes {
    pub rows: usize,
    pub times_missing: usize,
    /// The least and the greatest of the times that there are.
    pub times_ms: Option<(i64, i64)>,
    pub key: Column,
    pub value: Column,
    pub records_with_headers: usize,
    pub headers: usize,
    pub name: Column,
    pub content: Column,
}

#[derive(Clone, Copy, Default)]
pub struct Column {
    pub bytes: usize,
    pub nulls: usize,
}

impl Column {
    fn count(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.bytes += value.len(),
            None => self.nulls += 1,
        }
    }
}

/// What the columns of a batch take that is right in all its parts; None where anything is wrong.
pub fn checked(data: &[u8], frame: Frame) -> Option<Sizes> {
    // Arrow's places within binary columns are numbers of 31 bits.
    i32::try_from(data.len()).ok()?;
    let mut sizes = Sizes { rows: frame.rows, ..Sizes::default() };
    walk(data, frame, |record| {
        match record.timestamp_ms {
            NO_TIMESTAMP => sizes.times_missing += 1,
            time => {
                let (least, greatest) = sizes.times_ms.unwrap_or((time, time));
                sizes.times_ms = Some((least.min(time), greatest.max(time)));
            }
        }
        sizes.key.count(record.key);
        sizes.value.count(record.value);
        let mut headers = record.headers;
        sizes.records_with_headers += usize::from(!headers.is_empty());
        while !headers.is_empty() {
            let (name, content) = headers.next()?;
            std::str::from_utf8(name).ok()?;
            sizes.headers += 1;
            sizes.name.count(Some(name));
            sizes.content.count(content);
        }
        headers.ended().then_some(())
    })?;
    Some(sizes)
}
