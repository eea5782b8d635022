//! Arrow's columns as the records of a batch.

#![forbid(unsafe_code)]

const US_PER_MS: i64 = 1_000;
const RECORD_BYTES_EXTRA: i64 = 32;
const HEADER_BYTES_EXTRA: i64 = 10;

/// Numbers of a fixed width, from one place of a buffer on.
pub struct Numbers<'a> {
    pub bytes: &'a [u8],
    pub first: usize,
}

impl Numbers<'_> {
    fn get<const N: usize>(&self, index: usize) -> Option<[u8; N]> {
        let start = self.first.checked_add(index)?.checked_mul(N)?;
        self.bytes.get(start..)?.first_chunk().copied()
    }

    fn get64(&self, index: usize) -> Option<i64> {
        self.get(index).map(i64::from_ne_bytes)
    }

    fn get32(&self, index: usize) -> Option<usize> {
        usize::try_from(i32::from_ne_bytes(self.get(index)?)).ok()
    }
}

/// A column of binary values, or of lists, whose values are elsewhere; without `ends` it is null throughout.
pub struct Column<'a> {
    pub validity: Option<&'a [u8]>,
    pub ends: Option<&'a [u8]>,
    pub bytes: &'a [u8],
    pub first: usize,
}

impl<'a> Column<'a> {
    /// Where a value begins and ends. The inner None is null, the outer one wrong.
    fn range(&self, row: usize) -> Option<Option<(usize, usize)>> {
        let Some(ends) = self.ends else {
            return Some(None);
        };
        if let Some(validity) = self.validity {
            let bit = self.first.checked_add(row)?;
            if validity.get(bit / 8)? >> (bit % 8) & 1 == 0 {
                return Some(None);
            }
        }
        let numbers = Numbers { bytes: ends, first: self.first };
        let (start, end) = (numbers.get32(row)?, numbers.get32(row.checked_add(1)?)?);
        (start <= end).then_some(Some((start, end)))
    }

    fn get(&self, row: usize) -> Option<Option<&'a [u8]>> {
        Some(match self.range(row)? {
            Some((start, end)) => Some(self.bytes.get(start..end)?),
            None => None,
        })
    }
}

/// Records as columns; a header's name that is null is an empty one.
pub struct Columns<'a> {
    pub offsets: Numbers<'a>,
    pub times_us: Numbers<'a>,
    pub key: Column<'a>,
    pub value: Column<'a>,
    pub headers: Column<'a>,
    pub name: Column<'a>,
    pub content: Column<'a>,
}

/// Within which a batch has to stay.
pub struct Limits {
    pub bytes_max: i64,
    pub gap_max: i64,
    pub delta_max: i64,
}

impl<'a> Columns<'a> {
    /// The row after the last of each batch. None where the columns are none.
    pub fn cuts(&self, rows: usize, limits: &Limits) -> Option<Vec<usize>> {
        let mut cuts = Vec::new();
        let (mut first, mut before, mut used) = (0, 0, 0);
        for row in 0..rows {
            let (offset, size) = (self.offsets.get64(row)?, self.size(row)?);
            let is_first = cuts.last().map_or(row == 0, |last| *last == row);
            let is_far = offset.checked_sub(before)? > limits.gap_max || offset.checked_sub(first)? > limits.delta_max;
            if !is_first && (is_far || used + size > limits.bytes_max) {
                cuts.push(row);
            }
            if cuts.last().map_or(row == 0, |last| *last == row) {
                (first, used) = (offset, 0);
            }
            before = offset;
            used += size;
        }
        if rows > 0 {
            cuts.push(rows);
        }
        Some(cuts)
    }

    /// About what a record takes.
    fn size(&self, row: usize) -> Option<i64> {
        let mut size = RECORD_BYTES_EXTRA;
        for column in [&self.key, &self.value] {
            let (start, end) = column.range(row)?.unwrap_or((0, 0));
            size += (end - start) as i64;
        }
        let (first, last) = self.headers.range(row)?.unwrap_or((0, 0));
        for header in first..last {
            for column in [&self.name, &self.content] {
                let (start, end) = column.range(header)?.unwrap_or((0, 0));
                size += (end - start) as i64;
            }
            size += HEADER_BYTES_EXTRA;
        }
        Some(size)
    }

    /// Calls `each` with every record from `start` to `end`, and with the bytes of its body.
    fn walk(&self, start: usize, end: usize, mut each: impl FnMut(&Record<'_, 'a>, usize) -> Option<()>) -> Option<()> {
        if start >= end {
            return Some(());
        }
        let (first_offset, first_ms) = (self.offsets.get64(start)?, self.millis(start)?);
        for row in start..end {
            let record = Record {
                of: self,
                time: self.millis(row)?.checked_sub(first_ms)?,
                offset: self.offsets.get64(row)?.checked_sub(first_offset)?,
                key: self.key.get(row)?,
                value: self.value.get(row)?,
                headers: self.headers.range(row)?.unwrap_or((0, 0)),
            };
            each(&record, record.bytes()?)?;
        }
        Some(())
    }

    /// Rounded towards the past, also before 1970.
    fn millis(&self, row: usize) -> Option<i64> {
        Some(self.times_us.get64(row)?.div_euclid(US_PER_MS))
    }

    /// The bytes of the records from `start` to `end` as a batch, and the latest of their times, in milliseconds.
    pub fn measured(&self, start: usize, end: usize) -> Option<(usize, i64)> {
        let (mut bytes, mut latest) = (0_usize, i64::MIN);
        self.walk(start, end, |record, length| {
            bytes = bytes.checked_add(varint_bytes(length as i64))?.checked_add(length)?;
            latest = latest.max(record.time);
            Some(())
        })?;
        Some((bytes, latest.saturating_add(self.millis(start)?)))
    }

    /// Writes those records into `out`, which has as many bytes as were measured.
    pub fn write(&self, start: usize, end: usize, out: &mut [u8]) -> Option<()> {
        let mut writer = Writer { left: out };
        self.walk(start, end, |record, length| {
            writer.varint(i64::try_from(length).ok()?)?;
            record.write(&mut writer)
        })?;
        writer.left.is_empty().then_some(())
    }
}

struct Record<'r, 'a> {
    of: &'r Columns<'a>,
    time: i64,
    offset: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: (usize, usize),
}

impl Record<'_, '_> {
    fn bytes(&self) -> Option<usize> {
        let (first, last) = self.headers;
        let mut bytes = 1 + varint_bytes(self.time) + varint_bytes(self.offset);
        bytes += prefixed_bytes(self.key) + prefixed_bytes(self.value) + varint_bytes((last - first) as i64);
        for header in first..last {
            bytes += prefixed_bytes(Some(self.of.name.get(header)?.unwrap_or_default()));
            bytes += prefixed_bytes(self.of.content.get(header)?);
        }
        Some(bytes)
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        let (first, last) = self.headers;
        writer.byte(0)?;
        writer.varint(self.time)?;
        writer.varint(self.offset)?;
        writer.prefixed(self.key)?;
        writer.prefixed(self.value)?;
        writer.varint(i64::try_from(last - first).ok()?)?;
        for header in first..last {
            writer.prefixed(Some(self.of.name.get(header)?.unwrap_or_default()))?;
            writer.prefixed(self.of.content.get(header)?)?;
        }
        Some(())
    }
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn varint_bytes(number: i64) -> usize {
    let bits = 64 - (zigzag(number) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn prefixed_bytes(value: Option<&[u8]>) -> usize {
    value.map_or(1, |value| varint_bytes(value.len() as i64) + value.len())
}

/// Memory that is written once, from the front.
struct Writer<'o> {
    left: &'o mut [u8],
}

impl Writer<'_> {
    fn put(&mut self, data: &[u8]) -> Option<()> {
        let (own, left) = std::mem::take(&mut self.left).split_at_mut_checked(data.len())?;
        own.copy_from_slice(data);
        self.left = left;
        Some(())
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        let (own, left) = std::mem::take(&mut self.left).split_first_mut()?;
        *own = byte;
        self.left = left;
        Some(())
    }

    fn varint(&mut self, number: i64) -> Option<()> {
        let mut rest = zigzag(number);
        while rest >= 0x80 {
            self.byte(rest as u8 | 0x80)?;
            rest >>= 7;
        }
        self.byte(rest as u8)
    }

    fn prefixed(&mut self, value: Option<&[u8]>) -> Option<()> {
        let Some(value) = value else {
            return self.varint(-1);
        };
        self.varint(i64::try_from(value.len()).ok()?)?;
        self.put(value)
    }
}
