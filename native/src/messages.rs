//! Messages of Kafka's protocol, read and written as fields that Python describes say. Where something is wrong, or of another
//! type than usual, it is `Odd` here, and the closures in Python take it or say what is wrong.

#![forbid(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyList, PySlice, PyString, PyTuple};

use self::absent::Absent;
use self::input::Input;
use self::output::Output;
use self::turns::Turns;
use crate::Memory;

mod absent;
mod input;
mod output;
mod turns;

const UUID_BYTES: usize = 16;

/// Something is wrong, or not as usual: Python looks at it.
pub struct Odd;

impl From<PyErr> for Odd {
    fn from(_: PyErr) -> Odd {
        Odd
    }
}

type Found<T> = Result<T, Odd>;

/// How the length of text, bytes and arrays is written.
#[derive(Clone, Copy)]
enum Length {
    Int16,
    Int32,
    Compact,
}

enum Kind {
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Uuid,
    Text(Length),
    Bytes(Length),
    Records(Length),
    Array(Length, Box<Value>),
    Struct(Struct),
}

struct Value {
    kind: Kind,
    nullable: bool,
}

struct Field {
    name: Py<PyString>,
    value: Value,
    /// What is written where no value is given; None where there is no such thing.
    default: Option<Vec<u8>>,
}

struct Struct {
    own: Vec<Field>,
    /// By rising tags.
    tagged: Vec<(u32, Field)>,
    /// The names of fields that this version lacks, or has no place for.
    others: Vec<Py<PyString>>,
    flexible: bool,
    /// What each message begins as, until what is read and what is made anew has come in its place.
    template: Py<PyDict>,
    /// What is made anew for each message, as it may not be read.
    fresh: Vec<(Py<PyString>, Absent)>,
}

impl Value {
    /// Describes a `Field` of Python.
    fn of(field: &Bound<'_, PyAny>, version: i64, flexible: bool) -> PyResult<Value> {
        let kind = field.getattr("kind")?;
        let nullable = version >= field.getattr("nullable_since")?.extract()?;
        Value::of_kind(field, &kind, nullable, version, flexible)
    }

    fn of_kind(
        field: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyAny>,
        nullable: bool,
        version: i64,
        flexible: bool,
    ) -> PyResult<Value> {
        let name: String = kind.getattr("value")?.extract()?;
        let length = match name.as_str() {
            _ if flexible => Length::Compact,
            "text" => Length::Int16,
            _ => Length::Int32,
        };
        let kind = match name.as_str() {
            "?" => Kind::Boolean,
            "b" => Kind::Int8,
            "h" => Kind::Int16,
            "i" => Kind::Int32,
            "q" => Kind::Int64,
            "16s" => Kind::Uuid,
            "text" => Kind::Text(length),
            "bytes" => Kind::Bytes(length),
            "records" => Kind::Records(length),
            "struct" => Kind::Struct(Struct::of(&field.getattr("fields")?, version, flexible)?),
            "array" => {
                let of = Value::of_kind(field, &field.getattr("of")?, false, version, flexible)?;
                Kind::Array(length, Box::new(of))
            }
            _ => return Err(unknown(&name)),
        };
        Ok(Value { kind, nullable })
    }

    fn read<'py>(&self, py: Python<'py>, input: &mut Input<'_, 'py>) -> Found<Bound<'py, PyAny>> {
        Ok(match &self.kind {
            Kind::Boolean => PyBool::new(py, input.array::<1>()? != [0]).to_owned().into_any(),
            Kind::Int8 => PyInt::new(py, i8::from_be_bytes(input.array()?)).into_any(),
            Kind::Int16 => PyInt::new(py, i16::from_be_bytes(input.array()?)).into_any(),
            Kind::Int32 => PyInt::new(py, i32::from_be_bytes(input.array()?)).into_any(),
            Kind::Int64 => PyInt::new(py, i64::from_be_bytes(input.array()?)).into_any(),
            Kind::Uuid => PyBytes::new(py, input.take(UUID_BYTES)?).into_any(),
            Kind::Text(length) => match input.sized(*length, self.nullable)? {
                Some(text) => PyString::new(py, std::str::from_utf8(text).map_err(|_| Odd)?).into_any(),
                None => py.None().into_bound(py),
            },
            Kind::Bytes(length) => match input.sized(*length, self.nullable)? {
                Some(bytes) => PyBytes::new(py, bytes).into_any(),
                None => py.None().into_bound(py),
            },
            Kind::Records(length) => match input.sized(*length, self.nullable)? {
                Some(bytes) => view(py, input, bytes.len())?,
                None => py.None().into_bound(py),
            },
            Kind::Array(length, of) => match input.length(*length, self.nullable)? {
                Some(count) => array(py, input, count, of)?.into_any(),
                None => py.None().into_bound(py),
            },
            Kind::Struct(of) => {
                if self.nullable && input.array::<1>()?[0] >= 0x80 {
                    py.None().into_bound(py)
                } else {
                    of.read(py, input)?.into_any()
                }
            }
        })
    }

    fn write(&self, py: Python<'_>, value: &Bound<'_, PyAny>, out: &mut Output<'_>) -> Found<()> {
        match &self.kind {
            Kind::Boolean => out.bytes.push(value.is_truthy()?.into()),
            Kind::Int8 => out.bytes.extend(integer::<i8>(value)?.to_be_bytes()),
            Kind::Int16 => out.bytes.extend(integer::<i16>(value)?.to_be_bytes()),
            Kind::Int32 => out.bytes.extend(integer::<i32>(value)?.to_be_bytes()),
            Kind::Int64 => out.bytes.extend(integer::<i64>(value)?.to_be_bytes()),
            Kind::Uuid => {
                let bytes = value.cast::<PyBytes>().map_err(|_| Odd)?.as_bytes();
                out.bytes.extend(<[u8; UUID_BYTES]>::try_from(bytes).map_err(|_| Odd)?);
            }
            Kind::Text(length) => match self.given(value)? {
                Some(value) => {
                    let text = value.cast::<PyString>().map_err(|_| Odd)?.encode_utf8()?;
                    out.length(*length, text.as_bytes().len())?;
                    out.bytes.extend_from_slice(text.as_bytes());
                }
                None => out.null(*length),
            },
            Kind::Bytes(length) | Kind::Records(length) => match self.given(value)? {
                Some(value) => buffers(py, value, *length, out)?,
                None => out.null(*length),
            },
            Kind::Array(length, of) => match self.given(value)? {
                Some(values) => {
                    let count = values.len()?;
                    out.length(*length, count)?;
                    let mut written = 0;
                    for each in values.try_iter()? {
                        of.write(py, &each?, out)?;
                        written += 1;
                        out.turns.element(py)?;
                    }
                    if written != count {
                        return Err(Odd);
                    }
                }
                None => out.null(*length),
            },
            Kind::Struct(of) => match self.given(value)? {
                Some(value) => {
                    if self.nullable {
                        out.bytes.push(1);
                    }
                    of.write(py, value, out)?;
                }
                None => out.bytes.push(0xFF),
            },
        }
        Ok(())
    }

    fn written(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Found<Vec<u8>> {
        let mut out = Output::new(vec![], usize::MAX, Turns::default());
        self.write(py, value, &mut out)?;
        Ok(out.bytes)
    }

    /// None where the value is null and may be.
    fn given<'a, 'py>(&self, value: &'a Bound<'py, PyAny>) -> Found<Option<&'a Bound<'py, PyAny>>> {
        match (value.is_none(), self.nullable) {
            (false, _) => Ok(Some(value)),
            (true, true) => Ok(None),
            (true, false) => Err(Odd),
        }
    }
}

fn integer<'py, T: for<'a> FromPyObject<'a, 'py>>(value: &Bound<'py, PyAny>) -> Found<T> {
    value.extract().map_err(|_| Odd)
}

fn unknown(kind: &str) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(format!("there is no kind of field {kind:?}"))
}

/// The last `length` bytes that were taken, as a view of the frame.
fn view<'py>(py: Python<'py>, input: &Input<'_, 'py>, length: usize) -> Found<Bound<'py, PyAny>> {
    let end = isize::try_from(input.at).map_err(|_| Odd)?;
    let start = isize::try_from(input.at - length).map_err(|_| Odd)?;
    Ok(input.frame.get_item(PySlice::new(py, start, end, 1))?)
}

fn array<'py>(py: Python<'py>, input: &mut Input<'_, 'py>, count: usize, of: &Value) -> Found<Bound<'py, PyList>> {
    input.elements = input.elements.checked_sub(count).ok_or(Odd)?;
    let values = PyList::empty(py);
    for _ in 0..count {
        values.append(of.read(py, input)?)?;
        input.turns.element(py)?;
    }
    Ok(values)
}

/// Writes bytes, or a list of buffers one after the other.
fn buffers(py: Python<'_>, value: &Bound<'_, PyAny>, length: Length, out: &mut Output<'_>) -> Found<()> {
    let each: Vec<Bound<'_, PyAny>> = if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        value.try_iter()?.collect::<PyResult<_>>()?
    } else {
        vec![value.clone()]
    };
    let memories = each.iter().map(Memory::of).collect::<PyResult<Vec<_>>>()?;
    out.length(length, memories.iter().map(|memory| memory.bytes().len()).sum())?;
    for (buffer, memory) in each.iter().zip(&memories) {
        out.buffer(py, buffer, memory)?;
    }
    Ok(())
}

impl Struct {
    fn of(fields: &Bound<'_, PyAny>, version: i64, flexible: bool) -> PyResult<Struct> {
        let py = fields.py();
        let mut of = Struct {
            own: vec![],
            tagged: vec![],
            others: vec![],
            flexible,
            template: PyDict::new(py).unbind(),
            fresh: vec![],
        };
        for field in fields.try_iter()? {
            let field = field?;
            let name: Bound<'_, PyString> = field.getattr("name")?.extract()?;
            let tag: Option<u32> = field.getattr("tag")?.extract()?;
            let within: bool = field.call_method1("within", (version,))?.extract()?;
            let absent = Absent::of(&field)?;
            let made = absent.made(py)?;
            of.template.bind(py).set_item(&name, &made)?;
            if !matches!(absent, Absent::Constant(_)) && (!within || tag.is_some()) {
                of.fresh.push((name.clone().unbind(), absent));
            }
            if !within || (tag.is_some() && !flexible) {
                of.others.push(name.unbind());
                continue;
            }
            let value = Value::of(&field, version, flexible)?;
            let default = value.written(py, &made).ok();
            let own = Field { name: name.unbind(), value, default };
            match tag {
                Some(tag) => of.tagged.push((tag, own)),
                None => of.own.push(own),
            }
        }
        of.tagged.sort_by_key(|(tag, _)| *tag);
        Ok(of)
    }

    fn read<'py>(&self, py: Python<'py>, input: &mut Input<'_, 'py>) -> Found<Bound<'py, PyDict>> {
        let found = self.template.bind(py).copy()?;
        for (name, fresh) in &self.fresh {
            found.set_item(name, fresh.made(py)?)?;
        }
        for field in &self.own {
            found.set_item(&field.name, field.value.read(py, input)?)?;
        }
        if self.flexible {
            self.read_tagged(py, &found, input)?;
        }
        Ok(found)
    }

    /// Reads the tagged fields; those that are not known are passed over, as the protocol wants it.
    fn read_tagged<'py>(&self, py: Python<'py>, found: &Bound<'py, PyDict>, input: &mut Input<'_, 'py>) -> Found<()> {
        for _ in 0..input.uvarint()? {
            let (tag, size) = (input.uvarint()?, input.uvarint()?);
            let start = input.at;
            input.take(usize::try_from(size).map_err(|_| Odd)?)?;
            let end = input.at;
            let Some((_, field)) = self.tagged.iter().find(|(own, _)| *own == tag) else { continue };
            // The field is all of its bytes, and nothing behind them.
            let whole = input.bytes;
            input.bytes = &whole[..end];
            input.at = start;
            let value = field.value.read(py, input)?;
            input.bytes = whole;
            found.set_item(&field.name, value)?;
            if input.at != end {
                return Err(Odd);
            }
        }
        Ok(())
    }

    fn write(&self, py: Python<'_>, value: &Bound<'_, PyAny>, out: &mut Output<'_>) -> Found<()> {
        let value = value.cast::<PyDict>().map_err(|_| Odd)?;
        let mut known = 0;
        for field in &self.own {
            match value.get_item(&field.name)? {
                Some(given) => {
                    known += 1;
                    field.value.write(py, &given, out)?;
                }
                None => out.bytes.extend_from_slice(field.default.as_ref().ok_or(Odd)?),
            }
        }
        if self.flexible {
            known += self.write_tagged(py, value, out)?;
        }
        if known < value.len() {
            known += self.others.iter().filter(|name| value.contains(*name).unwrap_or(false)).count();
        }
        if known == value.len() { Ok(()) } else { Err(Odd) }
    }

    /// Writes the tagged fields that do not have their defaults; gives how many were given.
    fn write_tagged(&self, py: Python<'_>, value: &Bound<'_, PyDict>, out: &mut Output<'_>) -> Found<usize> {
        let (mut known, mut written) = (0, vec![]);
        for (tag, field) in &self.tagged {
            let Some(given) = value.get_item(&field.name)? else { continue };
            known += 1;
            let bytes = field.value.written(py, &given)?;
            if field.default.as_ref().ok_or(Odd)? != &bytes {
                written.push((*tag, bytes));
            }
        }
        out.uvarint(u32::try_from(written.len()).map_err(|_| Odd)?);
        for (tag, bytes) in written {
            out.uvarint(tag);
            out.uvarint(u32::try_from(bytes.len()).map_err(|_| Odd)?);
            out.bytes.extend_from_slice(&bytes);
        }
        Ok(known)
    }
}

/// A message in one version, as Python's fields describe it.
#[pyclass(frozen, module = "siltlog_native")]
pub struct Message {
    of: Struct,
    nothing: Py<PyAny>,
}

#[pymethods]
impl Message {
    /// `nothing` is a function of Python that does nothing.
    #[new]
    fn new(fields: &Bound<'_, PyAny>, version: i64, flexible: bool, nothing: Py<PyAny>) -> PyResult<Message> {
        Ok(Message { of: Struct::of(fields, version, flexible)?, nothing })
    }

    /// The message that begins at `at` of a view of bytes, and the place after it; its arrays may have `elements` in all.
    /// None where anything is wrong.
    fn read<'py>(
        &self,
        frame: &Bound<'py, PyAny>,
        at: usize,
        elements: usize,
    ) -> PyResult<Option<(Bound<'py, PyDict>, usize)>> {
        let memory = Memory::of(frame)?;
        if !memory.is_readonly() {
            return Ok(None);
        }
        let mut input = Input { frame, bytes: memory.bytes(), at, elements, turns: Turns::new(&self.nothing) };
        Ok(self.of.read(frame.py(), &mut input).ok().map(|found| (found, input.at)))
    }

    /// The message after `head`, in pieces: of buffers that have `piece_bytes_min` each is one. None where `value` does not
    /// fit.
    fn write(
        &self,
        py: Python<'_>,
        head: &[u8],
        value: &Bound<'_, PyAny>,
        piece_bytes_min: usize,
    ) -> Option<Vec<Py<PyAny>>> {
        let mut out = Output::new(head.to_vec(), piece_bytes_min, Turns::new(&self.nothing));
        self.of.write(py, value, &mut out).ok()?;
        out.flush(py);
        Some(out.pieces)
    }
}
