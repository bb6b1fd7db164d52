//! The types of the model with the indices of their fields and variants, read from the source of the model.

use std::collections::BTreeMap;
use std::path::Path;

use super::cbor::Value;

/// The encoding of a type.
#[derive(Debug)]
pub(super) enum Shape {
    Struct(BTreeMap<i64, Field>),
    /// A struct that is encoded as an array.
    Tuple(BTreeMap<i64, Field>),
    /// A struct that is encoded as its only field.
    Transparent(Field),
    Enum(BTreeMap<i64, (String, BTreeMap<i64, Field>)>),
    /// An enum without fields, which is encoded as the index of the variant.
    Index(BTreeMap<i64, String>),
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    of: String,
    is_reference: bool,
}

/// The encodings of all types, by name.
pub(super) struct Schema(BTreeMap<String, Shape>);

impl Schema {
    /// Reads the types from the source of the model and of this crate.
    pub(super) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        let mut dirs = vec![root.join("../model/src")];
        while let Some(dir) = dirs.pop() {
            for entry in dir.read_dir().unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    // The link passes the sums of analytics on as bytes.
                    true if path.ends_with("encoding") || path.ends_with("analytics") => {}
                    true => dirs.push(path),
                    false => text += &std::fs::read_to_string(path).unwrap(),
                }
            }
        }
        for file in ["messages.rs", "cut.rs"] {
            text += &std::fs::read_to_string(root.join("src").join(file)).unwrap();
        }
        let code: Vec<_> = text.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
        let code = code.join(" ");
        let mut types = BTreeMap::new();
        for derived in code.split("#[derive(").skip(1) {
            let (traits, rest) = derived.split_once(")]").unwrap();
            if traits.split(", ").any(|of| of == "Encode") {
                let (name, shape) = of_type(rest);
                assert!(types.insert(name.clone(), shape).is_none(), "there are two types {name}");
            }
        }
        Self(types)
    }

    /// The name of each field and variant, such as `Route.path`, `HostPattern::Any`.
    pub(super) fn all(&self) -> Vec<String> {
        let fields = |of: &str, fields: &BTreeMap<i64, Field>| -> Vec<String> {
            fields.values().map(|field| format!("{of}.{}", field.name)).collect()
        };
        let each = self.0.iter().flat_map(|(name, shape)| match shape {
            Shape::Struct(of) | Shape::Tuple(of) => fields(name, of),
            Shape::Transparent(_) => vec![],
            Shape::Enum(variants) => variants
                .values()
                .flat_map(|(variant, of)| {
                    let variant = format!("{name}::{variant}");
                    let mut all = fields(&variant, of);
                    all.push(variant);
                    all
                })
                .collect(),
            Shape::Index(variants) => variants.values().map(|variant| format!("{name}::{variant}")).collect(),
        });
        each.collect()
    }

    /// Visits a value and all values in it.
    pub(super) fn walk(&self, value: &Value, of: &str, visit: &mut impl FnMut(&Visit<'_>)) {
        self.step(value, of, "", &mut Vec::new(), visit);
    }

    fn step(
        &self,
        value: &Value,
        of: &str,
        label: &str,
        path: &mut Vec<i64>,
        visit: &mut impl FnMut(&Visit<'_>),
    ) {
        let is_optional = of.starts_with("Option<");
        let of = unwrapped(of);
        let shape = self.0.get(of);
        let mut names = vec![];
        if let Some(Shape::Transparent(field)) = shape {
            return self.step(value, &field.of, label, path, visit);
        }
        match (shape, value) {
            (Some(Shape::Index(variants)), Value::Int(index)) => {
                names.push(format!("{of}::{}", variants[&i64::try_from(*index).unwrap()]));
            }
            (Some(Shape::Enum(variants)), Value::Array(parts)) if matches!(parts[..], [Value::Int(_), _]) => {
                let Value::Int(index) = parts[0] else { panic!("{of}: {value:?}") };
                names.push(format!("{of}::{}", variants[&i64::try_from(index).unwrap()].0));
            }
            // A list of values of a type that is not encoded as an array itself.
            (Some(Shape::Tuple(_)) | None, _)
            | (Some(Shape::Struct(_)), Value::Map(_))
            | (_, Value::Array(_)) => {}
            _ => panic!("{of} is {value:?}"),
        }
        visit(&Visit {
            value,
            path,
            label,
            shape: Some(of).filter(|_| shape.is_some()),
            is_optional,
            names: &names,
        });
        let mut fields =
            |of: &str, fields: &BTreeMap<i64, Field>, index: i64, value: &Value, path: &mut Vec<i64>| {
                let field = fields.get(&index).unwrap_or_else(|| panic!("{of} has no field {index}"));
                path.push(index);
                let (label, inner) =
                    (format!("{of}.{}", field.name), if field.is_reference { "" } else { &field.of });
                self.step(value, inner, &label, path, visit);
                path.pop();
            };
        match (shape, value) {
            (Some(Shape::Struct(of_fields)), Value::Map(entries)) => {
                for (index, value) in entries {
                    fields(of, of_fields, *index, value, path);
                }
            }
            (Some(Shape::Tuple(of_fields)), Value::Array(items)) if !matches!(items[0], Value::Array(_)) => {
                for (index, value) in (0..).zip(items) {
                    fields(of, of_fields, index, value, path);
                }
            }
            (Some(Shape::Enum(variants)), Value::Array(parts)) if matches!(parts[..], [Value::Int(_), _]) => {
                let (Value::Int(index), Value::Map(entries)) = (&parts[0], &parts[1]) else {
                    panic!("{of}: {value:?}")
                };
                let (variant, of_fields) = &variants[&i64::try_from(*index).unwrap()];
                path.push(1);
                for (index, value) in entries {
                    fields(&format!("{of}::{variant}"), of_fields, *index, value, path);
                }
                path.pop();
            }
            (_, Value::Array(items)) => {
                for (index, item) in (0..).zip(items) {
                    path.push(index);
                    self.step(item, of, "", path, visit);
                    path.pop();
                }
            }
            _ => {}
        }
    }
}

/// A value inside another value, with its place.
pub(super) struct Visit<'v> {
    pub(super) value: &'v Value,
    pub(super) path: &'v [i64],
    /// The name of the field that holds the value, or empty.
    pub(super) label: &'v str,
    /// The type, if the schema has the type. For a list: the type of its items.
    pub(super) shape: Option<&'v str>,
    /// Whether the field may be absent.
    pub(super) is_optional: bool,
    /// The name of the enum variant, or empty.
    pub(super) names: &'v [String],
}

/// The type inside pointers, lists and options.
fn unwrapped(of: &str) -> &str {
    let mut of = of.trim();
    loop {
        let inner = ["Option<", "Vec<", "Entries<", "Arc<", "Box<", "super::"].iter().find_map(|wrapper| {
            let inner = of.strip_prefix(wrapper)?;
            let inner = inner.strip_suffix('>').unwrap_or(inner);
            // A list with a limit, such as `Header, 32`.
            Some(inner.split_once(", ").filter(|_| *wrapper == "Entries<").map_or(inner, |(of, _)| of))
        });
        let Some(inner) = inner else { return of };
        of = inner;
    }
}

/// The name and encoding of a type. `rest` begins with the declaration, such as `#[cbor(map)] pub struct Rule { .. }`.
fn of_type(mut rest: &str) -> (String, Shape) {
    let mut attributes = String::new();
    loop {
        rest = rest.trim_start();
        let Some(attribute) = rest.strip_prefix("#[") else { break };
        let (attribute, behind) = split_at_end(attribute, ']');
        attributes += attribute;
        rest = behind;
    }
    let rest = rest.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
    let (keyword, rest) = rest.split_once(' ').unwrap();
    let end = rest.find(|character: char| !character.is_alphanumeric()).unwrap();
    let (name, rest) = rest.split_at(end);
    let body = rest.trim_start();
    let shape = match (keyword, body.as_bytes()[0]) {
        ("struct", b'{') if attributes.contains("map") => {
            Shape::Struct(of_fields(split_at_end(&body[1..], '}').0))
        }
        ("struct", b'{') => Shape::Tuple(of_fields(split_at_end(&body[1..], '}').0)),
        ("struct", _) => {
            assert!(attributes.contains("transparent"), "{name}");
            Shape::Transparent(of_fields(split_at_end(&body[1..], ')').0)[&0].clone())
        }
        _ => of_enum(split_at_end(&body[1..], '}').0, attributes.contains("index_only")),
    };
    (name.to_owned(), shape)
}

/// Splits `text` at the closing bracket or separator `end`, outside of nested brackets.
fn split_at_end(text: &str, end: char) -> (&str, &str) {
    let mut depth = 0;
    let mut is_quoted = false;
    for (at, character) in text.char_indices() {
        match character {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            _ if depth == 0 && character == end => return (&text[..at], &text[at + 1..]),
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
    }
    (text, "")
}

fn of_fields(text: &str) -> BTreeMap<i64, Field> {
    let mut fields = BTreeMap::new();
    for part in parts(text) {
        let (attributes, declared) = attributes_of(part);
        if attributes.contains("cbor(skip)") {
            continue;
        }
        let declared = declared.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let (name, of) = declared.split_once(": ").unwrap_or(("0", declared));
        let is_reference = attributes.contains("Shared>\"") || attributes.contains("\"Shared\"");
        let field = Field { name: name.to_owned(), of: of.to_owned(), is_reference };
        assert!(fields.insert(index_of(&attributes), field).is_none(), "{part}");
    }
    fields
}

fn of_enum(text: &str, is_index_only: bool) -> Shape {
    let mut variants = BTreeMap::new();
    for part in parts(text) {
        let (attributes, declared) = attributes_of(part);
        let end = declared.find(|character: char| !character.is_alphanumeric()).unwrap_or(declared.len());
        let (name, rest) = declared.split_at(end);
        let inner = match rest.trim_start().as_bytes().first() {
            Some(b'{') => split_at_end(&rest.trim_start()[1..], '}').0,
            Some(b'(') => split_at_end(&rest.trim_start()[1..], ')').0,
            _ => "",
        };
        assert!(
            variants.insert(index_of(&attributes), (name.to_owned(), of_fields(inner))).is_none(),
            "{part}"
        );
    }
    match is_index_only {
        true => Shape::Index(variants.into_iter().map(|(index, (name, _))| (index, name)).collect()),
        false => Shape::Enum(variants),
    }
}

/// The index of a field or a variant. Panics without an index.
fn index_of(attributes: &str) -> i64 {
    let digits = attributes.split("n(").skip(1).find_map(|rest| rest.split_once(')')?.0.parse().ok());
    digits.unwrap_or_else(|| panic!("no index: {attributes}"))
}

/// The parts of a list that is separated by commas, without empty parts.
fn parts(mut text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    while !text.trim().is_empty() {
        let (part, rest) = split_at_end(text, ',');
        parts.extend(Some(part.trim()).filter(|part| !part.is_empty()));
        text = rest;
    }
    parts
}

fn attributes_of(mut part: &str) -> (String, &str) {
    let mut attributes = String::new();
    while let Some(rest) = part.strip_prefix("#[") {
        let (attribute, behind) = split_at_end(rest, ']');
        attributes += attribute;
        attributes.push(' ');
        part = behind.trim_start();
    }
    (attributes, part)
}
