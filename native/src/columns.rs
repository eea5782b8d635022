//! Records of a batch as the buffers of Arrow's columns, one behind the other in one piece of memory.

#![forbid(unsafe_code)]

use crate::records::{Column, Frame, NO_TIMESTAMP, Sizes, walk};

const ALIGN_BYTES: usize = 16;
const US_PER_MS: i64 = 1_000;

/// Where a buffer begins, and the bytes that it has; None where the column needs none.
pub type Place = Option<(usize, usize)>;

/// Where the buffers of all columns come to lie.
pub struct Layout {
    /// In this order, each of a binary column validity, ends and bytes: the times' validity and values; key; value;
    /// the headers' validity and ends; their names' ends and bytes; their contents.
    pub places: [Place; 15],
    pub bytes: usize,
}

impl Layout {
    /// A column that is null throughout has no buffers.
    pub fn of(sizes: &Sizes) -> Layout {
        let mut laid = Layout { places: [None; 15], bytes: 0 };
        let rows = sizes.rows;
        if sizes.times_missing < rows {
            laid.place(0, bits(rows), sizes.times_missing > 0);
            laid.place(1, 8 * rows, true);
        }
        laid.binary(2, rows, sizes.key);
        laid.binary(5, rows, sizes.value);
        if sizes.headers > 0 {
            laid.place(8, bits(rows), sizes.records_with_headers < rows);
            laid.place(9, 4 * (rows + 1), true);
            laid.place(10, 4 * (sizes.headers + 1), true);
            laid.place(11, sizes.name.bytes, true);
            laid.binary(12, sizes.headers, sizes.content);
        }
        laid
    }

    fn binary(&mut self, first: usize, rows: usize, column: Column) {
        if column.nulls < rows {
            self.place(first, bits(rows), column.nulls > 0);
            self.place(first + 1, 4 * (rows + 1), true);
            self.place(first + 2, column.bytes, true);
        }
    }

    fn place(&mut self, which: usize, length: usize, needed: bool) {
        if needed {
            self.places[which] = Some((self.bytes, length));
            self.bytes = (self.bytes + length).next_multiple_of(ALIGN_BYTES);
        }
    }
}

fn bits(rows: usize) -> usize {
    rows.div_ceil(8)
}

/// Writes the records of a batch that `checked` has passed into `out`, which has zeros and the layout's bytes.
///
/// None where they are not those that were checked.
pub fn fill(data: &[u8], frame: Frame, layout: &Layout, out: &mut [u8]) -> Option<()> {
    let mut parts = carved(layout, out)?.into_iter();
    let mut part = || parts.next();
    let (times_validity, times) = (part()?, part()?);
    let mut key = Binary::new(part()?, part()?, part()?);
    let mut value = Binary::new(part()?, part()?, part()?);
    let (lists_validity, lists) = (part()?, part()?);
    let mut name = Binary::new(&mut [], part()?, part()?);
    let mut content = Binary::new(part()?, part()?, part()?);
    let (mut row, mut headers) = (0, 0_i32);
    walk(data, frame, |record| {
        if !times.is_empty() {
            // Where it is null any number may stand.
            write(times, row, record.timestamp_ms.wrapping_mul(US_PER_MS).to_ne_bytes())?;
            mark(times_validity, row, record.timestamp_ms != NO_TIMESTAMP)?;
        }
        key.push(record.key)?;
        value.push(record.value)?;
        row += 1;
        if !lists.is_empty() {
            let mut own = record.headers;
            mark(lists_validity, row - 1, !own.is_empty())?;
            while !own.is_empty() {
                let (own_name, own_content) = own.next()?;
                name.push(Some(own_name))?;
                content.push(own_content)?;
                headers += 1;
            }
            write(lists, row, headers.to_ne_bytes())?;
        }
        Some(())
    })
}

/// The parts of `out` in the order of the layout; empty where a buffer is not needed.
fn carved<'o>(layout: &Layout, out: &'o mut [u8]) -> Option<Vec<&'o mut [u8]>> {
    let mut parts = Vec::with_capacity(layout.places.len());
    let mut rest = out;
    let mut at = 0;
    for place in &layout.places {
        let Some((start, length)) = place else {
            parts.push(&mut [] as &mut [u8]);
            continue;
        };
        let (_, from) = rest.split_at_mut_checked(start.checked_sub(at)?)?;
        let (own, behind) = from.split_at_mut_checked(*length)?;
        parts.push(own);
        rest = behind;
        at = start + length;
    }
    Some(parts)
}

fn write<const N: usize>(out: &mut [u8], index: usize, number: [u8; N]) -> Option<()> {
    out.get_mut(index * N..(index + 1) * N)?.copy_from_slice(&number);
    Some(())
}

/// Says in a bitmap, where there is one, whether a value is there.
fn mark(bitmap: &mut [u8], index: usize, is_there: bool) -> Option<()> {
    if is_there && !bitmap.is_empty() {
        *bitmap.get_mut(index / 8)? |= 1 << (index % 8);
    }
    Some(())
}

/// A binary column that is being written, or one that is null throughout, of which nothing is.
struct Binary<'o> {
    validity: &'o mut [u8],
    ends: &'o mut [u8],
    bytes: &'o mut [u8],
    rows: usize,
    end: usize,
}

impl<'o> Binary<'o> {
    fn new(validity: &'o mut [u8], ends: &'o mut [u8], bytes: &'o mut [u8]) -> Binary<'o> {
        Binary { validity, ends, bytes, rows: 0, end: 0 }
    }

    fn push(&mut self, value: Option<&[u8]>) -> Option<()> {
        if self.ends.is_empty() {
            return value.is_none().then_some(());
        }
        if let Some(value) = value {
            let end = self.end.checked_add(value.len())?;
            self.bytes.get_mut(self.end..end)?.copy_from_slice(value);
            self.end = end;
        }
        mark(self.validity, self.rows, value.is_some())?;
        self.rows += 1;
        write(self.ends, self.rows, i32::try_from(self.end).ok()?.to_ne_bytes())
    }
}
