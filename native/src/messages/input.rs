//! A frame that is read, of which nothing is believed: every length is checked before it is used.

#![forbid(unsafe_code)]

use pyo3::prelude::*;

use super::turns::Turns;
use super::{Found, Length, Odd};

const UVARINT_BYTES_MAX: usize = 5;

/// A frame that is read from the front.
pub struct Input<'a, 'py> {
    pub frame: &'a Bound<'py, PyAny>,
    pub bytes: &'a [u8],
    pub at: usize,
    /// How many elements its arrays may still have.
    pub elements: usize,
    pub turns: Turns<'a>,
}

impl<'a> Input<'a, '_> {
    pub fn take(&mut self, length: usize) -> Found<&'a [u8]> {
        let end = self.at.checked_add(length).ok_or(Odd)?;
        let taken = self.bytes.get(self.at..end).ok_or(Odd)?;
        self.at = end;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Found<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Odd)
    }

    pub fn uvarint(&mut self) -> Found<u32> {
        let mut value = 0u64;
        for place in 0..UVARINT_BYTES_MAX {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte < 0x80 {
                return u32::try_from(value).map_err(|_| Odd);
            }
        }
        Err(Odd)
    }

    /// None where it is null.
    pub fn length(&mut self, length: Length, nullable: bool) -> Found<Option<usize>> {
        let found = match length {
            Length::Int16 => i64::from(i16::from_be_bytes(self.array()?)),
            Length::Int32 => i64::from(i32::from_be_bytes(self.array()?)),
            Length::Compact => i64::from(self.uvarint()?) - 1,
        };
        if found == -1 && nullable { Ok(None) } else { usize::try_from(found).map(Some).map_err(|_| Odd) }
    }

    pub fn sized(&mut self, length: Length, nullable: bool) -> Found<Option<&'a [u8]>> {
        self.length(length, nullable)?.map(|length| self.take(length)).transpose()
    }
}
