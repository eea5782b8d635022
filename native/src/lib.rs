//! Record batches of Kafka as the buffers of Arrow's columns, and back, and its messages: what Siltlog does with numpy and
//! Python where this is not installed. What is not taken here, or gives None, is looked at there, and it is said there what
//! is wrong with it.

mod columns;
mod encoding;
mod messages;
mod records;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::columns::{Layout, Place, fill};
use crate::encoding::{Limits, Numbers};
use crate::records::{Frame, NO_TIMESTAMP, Sizes, checked, walk};

/// For less than so many bytes the interpreter's lock is kept: who gives it up may wait half a millisecond for it.
const LOCKED_BYTES_MAX: usize = 128 * 1024;
const US_PER_MS: i64 = 1_000;

/// Memory of a Python object to which nobody writes while this is alive: `bytes`, or what Arrow has.
struct Memory(PyUntypedBuffer);

impl Memory {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("the buffer is not in one piece"));
        }
        Ok(Memory(buffer))
    }

    fn is_readonly(&self) -> bool {
        self.0.readonly()
    }

    fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the buffer is in one piece, as was looked at, has so many bytes, and keeps its memory in its place while
        // it is alive. Nobody writes to it: it is read-only, or of an array of Arrow, which is never changed, or
        // the interpreter's lock is kept as long as the bytes are looked at.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), self.0.len_bytes()) }
    }
}

/// Does some work on so many bytes, without the interpreter's lock where they are many.
fn unlocked<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < LOCKED_BYTES_MAX { work() } else { py.detach(work) }
}

fn changed() -> PyErr {
    PyValueError::new_err("the records are not those that were checked")
}

fn no_columns() -> PyErr {
    PyValueError::new_err("the buffers are no columns of records")
}

/// The records of a batch, all of whose parts are right.
#[pyclass(frozen, module = "siltlog_native")]
struct Records {
    data: Memory,
    frame: Frame,
    sizes: Sizes,
}

type Header<'py> = (Bound<'py, PyString>, Option<Bound<'py, PyBytes>>);
type Lists<'py> = (
    Vec<Option<i64>>,
    Vec<Option<Bound<'py, PyBytes>>>,
    Vec<Option<Bound<'py, PyBytes>>>,
    Vec<Option<Bound<'py, PyList>>>,
);

#[pymethods]
impl Records {
    /// The buffers of the columns in one piece of memory, and where each of them is in it: start and length, None where
    /// a column needs none. `Layout` has their order.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Vec<Place>)> {
        let layout = Layout::of(&self.sizes);
        let data = self.data.bytes();
        let memory = PyBytes::new_with(py, layout.bytes, |out| {
            unlocked(py, data.len(), || fill(data, self.frame, &layout, out)).ok_or_else(changed)
        })?;
        Ok((memory, layout.places.to_vec()))
    }

    /// The least and the greatest of the times, in microseconds; None where any record has none.
    fn time_bounds(&self) -> Option<(i64, i64)> {
        let (least, greatest) = self.sizes.times_ms.filter(|_| self.sizes.times_missing == 0)?;
        Some((least.wrapping_mul(US_PER_MS), greatest.wrapping_mul(US_PER_MS)))
    }

    /// How many headers there are in all.
    fn headers(&self) -> usize {
        self.sizes.headers
    }

    /// Times in microseconds, keys, values, and headers as names and contents; each None where a record has none.
    fn lists<'py>(&self, py: Python<'py>) -> PyResult<Lists<'py>> {
        let (mut times, mut keys, mut values, mut headers) = (vec![], vec![], vec![], vec![]);
        let mut failed = None;
        let walked = walk(self.data.bytes(), self.frame, |record| {
            let time = record.timestamp_ms;
            times.push((time != NO_TIMESTAMP).then(|| time.wrapping_mul(US_PER_MS)));
            keys.push(record.key.map(|key| PyBytes::new(py, key)));
            values.push(record.value.map(|value| PyBytes::new(py, value)));
            headers.push(listed(py, record.headers).map_err(|error| failed = Some(error)).ok()?);
            Some(())
        });
        match walked {
            Some(()) => Ok((times, keys, values, headers)),
            None => Err(failed.unwrap_or_else(changed)),
        }
    }
}

fn listed<'py>(py: Python<'py>, mut left: records::Headers<'_>) -> PyResult<Option<Bound<'py, PyList>>> {
    if left.is_empty() {
        return Ok(None);
    }
    let mut pairs: Vec<Header<'py>> = vec![];
    while !left.is_empty() {
        let (name, content) = left.next().ok_or_else(changed)?;
        let name = PyString::new(py, std::str::from_utf8(name).map_err(|_| changed())?);
        pairs.push((name, content.map(|content| PyBytes::new(py, content))));
    }
    PyList::new(py, pairs).map(Some)
}

/// The records of a batch, once each of their parts is checked; None where anything is wrong.
///
/// Times are `base_ms` and what each record adds to it, and lie between -1, which is none, and `latest_ms`.
#[pyfunction]
fn check(
    py: Python<'_>,
    records: &Bound<'_, PyAny>,
    rows: usize,
    base_ms: i64,
    latest_ms: i64,
) -> PyResult<Option<Records>> {
    let data = Memory::of(records)?;
    if !data.is_readonly() {
        return Ok(None);
    }
    let frame = Frame { rows, base_ms, latest_ms };
    let found = {
        let bytes = data.bytes();
        unlocked(py, bytes.len(), || checked(bytes, frame))
    };
    Ok(found.map(|sizes| Records { data, frame, sizes }))
}

type Buffers<'py> = (usize, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// The buffers of one column, and the first of the values in them that count.
struct Column {
    first: usize,
    validity: Option<Memory>,
    ends: Option<Memory>,
    bytes: Option<Memory>,
}

impl Column {
    fn of((first, validity, ends, bytes): Buffers<'_>) -> PyResult<Column> {
        Ok(Column { first, validity: kept(validity)?, ends: kept(ends)?, bytes: kept(bytes)? })
    }

    fn view(&self) -> encoding::Column<'_> {
        encoding::Column {
            validity: self.validity.as_ref().map(Memory::bytes),
            ends: self.ends.as_ref().map(Memory::bytes),
            bytes: self.bytes.as_ref().map_or(&[], Memory::bytes),
            first: self.first,
        }
    }
}

fn kept(buffer: Option<Bound<'_, PyAny>>) -> PyResult<Option<Memory>> {
    buffer.map(|buffer| Memory::of(&buffer)).transpose()
}

/// Records as Arrow's columns: of each the first row in its buffers, then validity, ends and bytes, where it has them.
/// The two of numbers have those as bytes; the one of headers has lists, whose names and contents are the last two.
#[pyclass(frozen, module = "siltlog_native")]
struct Columns {
    rows: usize,
    offsets: Column,
    times_us: Column,
    key: Column,
    value: Column,
    headers: Column,
    name: Column,
    content: Column,
}

impl Columns {
    fn view(&self) -> encoding::Columns<'_> {
        encoding::Columns {
            offsets: numbers_of(&self.offsets),
            times_us: numbers_of(&self.times_us),
            key: self.key.view(),
            value: self.value.view(),
            headers: self.headers.view(),
            name: self.name.view(),
            content: self.content.view(),
        }
    }
}

fn numbers_of(column: &Column) -> Numbers<'_> {
    Numbers { bytes: column.bytes.as_ref().map_or(&[], Memory::bytes), first: column.first }
}

#[pymethods]
impl Columns {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "as many as there are columns")]
    fn new(
        rows: usize,
        offsets: Buffers<'_>,
        times_us: Buffers<'_>,
        key: Buffers<'_>,
        value: Buffers<'_>,
        headers: Buffers<'_>,
        name: Buffers<'_>,
        content: Buffers<'_>,
    ) -> PyResult<Columns> {
        Ok(Columns {
            rows,
            offsets: Column::of(offsets)?,
            times_us: Column::of(times_us)?,
            key: Column::of(key)?,
            value: Column::of(value)?,
            headers: Column::of(headers)?,
            name: Column::of(name)?,
            content: Column::of(content)?,
        })
    }

    /// The row after the last of each batch: it ends before it would have more than `bytes_max`, before offsets that
    /// leave out more than `gap_max`, and where they are more than `delta_max` above its first.
    fn cuts(&self, py: Python<'_>, bytes_max: i64, gap_max: i64, delta_max: i64) -> PyResult<Vec<usize>> {
        let (columns, limits) = (self.view(), Limits { bytes_max, gap_max, delta_max });
        unlocked(py, columns.value.bytes.len(), || columns.cuts(self.rows, &limits)).ok_or_else(no_columns)
    }

    /// The records from `start` to `end` as those of one batch, and the latest of their times, in milliseconds.
    fn records<'py>(&self, py: Python<'py>, start: usize, end: usize) -> PyResult<(Bound<'py, PyBytes>, i64)> {
        let columns = self.view();
        if start >= end || end > self.rows {
            return Err(no_columns());
        }
        let about = columns.value.bytes.len() / self.rows * (end - start);
        let (bytes, latest_ms) = unlocked(py, about, || columns.measured(start, end)).ok_or_else(no_columns)?;
        let written = PyBytes::new_with(py, bytes, |out| {
            unlocked(py, bytes, || columns.write(start, end, out)).ok_or_else(no_columns)
        })?;
        Ok((written, latest_ms))
    }
}

#[pymodule(gil_used = false)]
mod siltlog_native {
    #[pymodule_export]
    use super::messages::Message;
    #[pymodule_export]
    use super::{Columns, Records, check};

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
