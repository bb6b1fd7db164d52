//! Parameters: from the text of a request to JSON values (OpenAPI 3.1, "Style Values").

use std::borrow::Cow;

use serde_json::{Map, Value};
use sluicegate_model::contract::{Parameter, ParameterPlace, ParameterStyle};

use crate::shape::Shape;

/// The most items of an array or an object in one parameter.
const ITEMS_MAX: usize = 1000;

/// The most keys of one parameter.
const DEPTH_MAX: usize = 8;

/// The value of a parameter in a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    Absent,
    /// The values that the text may stand for, the most likely first.
    Values(Vec<Value>),
    /// The text has not the form of the parameter.
    Malformed(&'static str),
}

/// The pairs of a query, of cookies or of a form. Names are decoded, values are not.
#[derive(Debug, Default)]
pub(crate) struct Pairs<'r> {
    pairs: Vec<(Cow<'r, str>, &'r str)>,
    /// Whether values have percent encoding, and a plus for a space.
    is_encoded: bool,
}

impl<'r> Pairs<'r> {
    /// The pairs of a query, or of a body of the type `application/x-www-form-urlencoded`.
    pub(crate) fn of_query(query: &'r str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self { pairs: pairs.map(|(name, value)| (decoded(name, true), value)).collect(), is_encoded: true }
    }

    /// The cookies of all `Cookie` headers (RFC 6265, 5.4).
    pub(crate) fn of_cookies(headers: impl Iterator<Item = &'r str>) -> Self {
        let pairs = headers.flat_map(|header| header.split(';'));
        let pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
        Self::of_parts(pairs.map(|(name, value)| (Cow::Borrowed(name), value)))
    }

    /// Pairs without any encoding.
    pub(crate) fn of_parts(pairs: impl Iterator<Item = (Cow<'r, str>, &'r str)>) -> Self {
        Self { pairs: pairs.collect(), is_encoded: false }
    }

    /// Whether a name occurs once, without a value.
    pub(crate) fn is_empty(&self, name: &str) -> bool {
        matches!(*self.all(name), [""])
    }

    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// The names of all pairs.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(name, _)| &**name)
    }

    /// The decoded values of all pairs with this name.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        self.all(name).into_iter().map(|text| self.decode(text)).collect()
    }

    fn all(&self, name: &str) -> Vec<&'r str> {
        self.pairs.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).collect()
    }

    fn decode(&self, text: &str) -> String {
        if self.is_encoded { decoded(text, true).into_owned() } else { text.to_owned() }
    }
}

/// Reads a parameter of the query or a cookie.
pub(crate) fn of_pairs(parameter: &Parameter, shape: &Shape, pairs: &Pairs<'_>) -> Found {
    let is_query = parameter.place == ParameterPlace::Query;
    let decode = |text: &str| pairs.decode(text);
    let is_object = shape.is_object();
    if parameter.style == ParameterStyle::DeepObject && (shape.types.object || shape.types.array) {
        let found = deep_object(&parameter.name, shape, pairs);
        // Without a key, the value may be of another type: `name=`.
        if is_object || found != Found::Absent {
            return found;
        }
    }
    if is_object && parameter.style == ParameterStyle::Form && parameter.explodes {
        let mut object = Map::new();
        for (name, of) in &shape.properties {
            if let Some(text) = pairs.all(name).first() {
                object.insert(name.to_string(), of.value(&decode(text)));
            }
        }
        return if object.is_empty() { Found::Absent } else { Found::Values(vec![object.into()]) };
    }
    let all = pairs.all(&parameter.name);
    let Some(first) = all.first() else { return Found::Absent };
    let separators: &[&str] = match parameter.style {
        ParameterStyle::Json => return json(&decode(first)),
        ParameterStyle::SpaceDelimited => &["%20", "+"],
        ParameterStyle::PipeDelimited => &["|", "%7C", "%7c"],
        _ => &[","],
    };
    if shape.types.array {
        let is_exploded = parameter.explodes && (is_query || all.len() > 1);
        let texts = if is_exploded { all } else { split(first, separators) };
        return array(shape, texts.into_iter().map(decode));
    }
    if all.len() > 1 {
        return Found::Malformed("occurs several times, but is no array");
    }
    if is_object {
        return object(shape, &split(first, separators), false, decode);
    }
    Found::Values(shape.values(&decode(first)))
}

/// Reads a parameter of the path, or a header.
pub(crate) fn of_text(parameter: &Parameter, shape: &Shape, text: &str) -> Found {
    let is_path = parameter.place == ParameterPlace::Path;
    let decode =
        |text: &str| if is_path { decoded(text, false).into_owned() } else { text.trim().to_owned() };
    let (is_array, is_object) = (shape.types.array, shape.types.object && !shape.types.array);
    let (text, separator) = match parameter.style {
        ParameterStyle::Json => return json(&decode(text)),
        ParameterStyle::Label => match text.strip_prefix('.') {
            Some(text) => (text, if parameter.explodes { "." } else { "," }),
            None => return Found::Malformed("does not begin with a dot"),
        },
        ParameterStyle::Matrix => return matrix(parameter, shape, text, decode),
        _ => (text, ","),
    };
    match (is_array, is_object) {
        (true, _) => array(shape, split(text, &[separator]).into_iter().map(decode)),
        (_, true) => object(shape, &split(text, &[separator]), parameter.explodes, decode),
        _ => Found::Values(shape.values(&decode(text))),
    }
}

/// `;name=a;name=b`, `;name=a,b` or `;key=value`.
fn matrix(parameter: &Parameter, shape: &Shape, text: &str, decode: impl Fn(&str) -> String) -> Found {
    let Some(text) = text.strip_prefix(';') else {
        return Found::Malformed("does not begin with a semicolon");
    };
    if shape.types.object && !shape.types.array && parameter.explodes {
        return object(shape, &split(text, &[";"]), true, decode);
    }
    let mut values = Vec::new();
    for pair in text.split(';').take(ITEMS_MAX) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode(name) != *parameter.name {
            return Found::Malformed("has not the form ;name=value");
        }
        values.push(value);
    }
    let first = values.first().copied().unwrap_or_default();
    if shape.types.array {
        let texts = if parameter.explodes { values } else { split(first, &[","]) };
        return array(shape, texts.into_iter().map(&decode));
    }
    if shape.types.object {
        return object(shape, &split(first, &[","]), false, decode);
    }
    Found::Values(shape.values(&decode(first)))
}

/// `name[key]=value`, also with several keys: `name[key][key]=value`, `name[key][0]=value`, `name[key][]=value`. OpenAPI does not
/// define several keys, but Services read them.
fn deep_object(name: &str, shape: &Shape, pairs: &Pairs<'_>) -> Found {
    let mut object = Value::Null;
    let mut count = 0;
    for (key, text) in &pairs.pairs {
        let Some(keys) = key.strip_prefix(name).and_then(keys) else { continue };
        count += 1;
        if count > ITEMS_MAX {
            return Found::Malformed("has too many properties");
        }
        if let Err(fault) = insert(&mut object, Some(shape), &keys, &pairs.decode(text)) {
            return Found::Malformed(fault);
        }
    }
    if object.is_null() { Found::Absent } else { Found::Values(vec![object]) }
}

/// The keys of `[key][key]`; `None` if the text has another form.
fn keys(text: &str) -> Option<Vec<&str>> {
    text.strip_prefix('[')?.strip_suffix(']').map(|inner| inner.split("][").collect())
}

/// Adds a text at a place of a value that is not there yet, or that earlier texts began.
fn insert(value: &mut Value, shape: Option<&Shape>, keys: &[&str], text: &str) -> Result<(), &'static str> {
    let is_array = shape.is_some_and(|shape| shape.types.array && !shape.types.object);
    let of_text = |shape: Option<&Shape>| shape.map_or_else(|| text.into(), |shape| shape.value(text));
    let (key, rest) = match keys {
        [] if is_array => ("", keys),
        [] if !value.is_null() => return Err("has a property that occurs several times"),
        [] => {
            *value = of_text(shape);
            return Ok(());
        }
        _ if keys.len() > DEPTH_MAX => return Err("has too many keys"),
        [key, rest @ ..] => (*key, rest),
    };
    if is_array || key.is_empty() {
        if value.is_null() {
            *value = Value::Array(Vec::new());
        }
        let Value::Array(items) = value else { return Err("has items, but is no array") };
        let index = match key {
            "" => items.len(),
            _ => key.parse().map_err(|_| "has a key, but is an array")?,
        };
        if index == items.len() {
            items.push(Value::Null);
        }
        let item = items.get_mut(index).ok_or("has items that are not in order")?;
        return insert(item, shape.and_then(|shape| shape.items.as_deref()), rest, text);
    }
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(object) = value else { return Err("has a key, but is no object") };
    let property = shape.and_then(|shape| shape.property(key));
    insert(object.entry(key).or_insert(Value::Null), property, rest, text)
}

/// Reads a field of a form without a style: an array is a field for each item, and an object is a JSON text.
pub(crate) fn of_texts(shape: &Shape, texts: &[String]) -> Found {
    let values = |shape: &Shape, text: &str| {
        let mut values = Vec::new();
        if shape.types.object || shape.types.array {
            values.extend(crate::json::read(text.as_bytes()).ok());
        }
        if !shape.is_object() || shape.types.string {
            values.extend(shape.values(text));
        }
        values
    };
    let any = Shape::default();
    match texts {
        [] => Found::Absent,
        _ if shape.types.array || *shape == any && texts.len() > 1 => {
            let of_item = shape.items.as_deref().unwrap_or(&any);
            let mut items = Vec::new();
            for text in texts {
                let Some(value) = values(of_item, text).into_iter().next() else {
                    return Found::Malformed("has an item that is not JSON");
                };
                items.push(value);
            }
            Found::Values(vec![items.into()])
        }
        [text] => match values(shape, text) {
            values if values.is_empty() => Found::Malformed("is not JSON"),
            values => Found::Values(values),
        },
        _ => Found::Malformed("occurs several times, but is no array"),
    }
}

fn array(shape: &Shape, texts: impl Iterator<Item = String>) -> Found {
    let mut items = Vec::new();
    for text in texts {
        if items.len() >= ITEMS_MAX {
            return Found::Malformed("has too many items");
        }
        items.push(shape.items.as_ref().map_or_else(|| Value::from(&*text), |of| of.value(&text)));
    }
    Found::Values(vec![items.into()])
}

/// `key,value,key,value`, or `key=value,key=value` if the object is exploded.
fn object(shape: &Shape, texts: &[&str], is_exploded: bool, decode: impl Fn(&str) -> String) -> Found {
    let mut pairs = Vec::new();
    match is_exploded {
        true => {
            for text in texts {
                let Some(pair) = text.split_once('=') else {
                    return Found::Malformed("has not the form key=value");
                };
                pairs.push(pair);
            }
        }
        false => {
            for pair in texts.chunks(2) {
                let [key, value] = pair else { return Found::Malformed("has a key without a value") };
                pairs.push((*key, *value));
            }
        }
    }
    let mut object = Map::new();
    for (key, value) in pairs {
        let (key, value) = (decode(key), decode(value));
        let value = shape.property(&key).map_or_else(|| Value::from(&*value), |of| of.value(&value));
        if object.insert(key, value).is_some() {
            return Found::Malformed("has a property that occurs several times");
        }
    }
    Found::Values(vec![object.into()])
}

fn json(text: &str) -> Found {
    match crate::json::read(text.as_bytes()) {
        Ok(value) => Found::Values(vec![value]),
        Err(_) => Found::Malformed("is not JSON"),
    }
}

/// The parts between separators, before they are decoded. An empty text has no parts.
fn split<'t>(text: &'t str, separators: &[&str]) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let mut rest = text;
    // One part more than allowed shows that there are too many.
    while !rest.is_empty() && parts.len() <= 2 * ITEMS_MAX {
        let found = separators.iter().filter_map(|of| rest.find(of).map(|at| (at, of.len()))).min();
        match found {
            Some((at, length)) => {
                parts.push(&rest[..at]);
                rest = &rest[at + length..];
                if rest.is_empty() {
                    parts.push("");
                }
            }
            None => {
                parts.push(rest);
                rest = "";
            }
        }
    }
    parts
}

/// The text without percent encoding. `with_plus`: a plus is a space.
pub(crate) fn decoded(text: &str, with_plus: bool) -> Cow<'_, str> {
    if !(text.contains('%') || with_plus && text.contains('+')) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let escape = match more {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        rest = more;
        match escape {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &more[2..];
            }
            None if with_plus && *first == b'+' => bytes.push(b' '),
            None => bytes.push(*first),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameter(place: ParameterPlace, style: ParameterStyle, explodes: bool) -> Parameter {
        Parameter {
            name: "color".into(),
            place,
            is_required: false,
            style,
            explodes,
            schema: None,
            allows_empty: false,
        }
    }

    fn shape(schema: Value) -> Shape {
        Shape::of(&schema, &Map::new())
    }

    fn string() -> Shape {
        shape(json!({"type": "string"}))
    }

    fn list() -> Shape {
        shape(json!({"type": "array", "items": {"type": "string"}}))
    }

    fn rgb() -> Shape {
        let number = json!({"type": "integer"});
        shape(json!({"type": "object", "properties": {"R": number, "G": number, "B": {"type": "string"}}}))
    }

    fn deep() -> Shape {
        let number = json!({"type": "object", "properties": {"b": {"type": "integer"}}});
        shape(json!({"type": "object", "properties": {
            "a": number, "list": {"type": "array", "items": {"type": "integer"}}, "in": {"type": "array", "items": number},
        }}))
    }

    fn one(value: Value) -> Found {
        Found::Values(vec![value])
    }

    #[test]
    fn query_parameters_have_the_styles_of_openapi() {
        use ParameterStyle::{DeepObject, Form, PipeDelimited, SpaceDelimited};
        let colors = || one(json!(["blue", "black", "brown"]));
        let mixed = || one(json!({"R": 100, "G": 200, "B": "150"}));
        for (style, explodes, shape, query, expected) in [
            (Form, true, string(), "color=blue", one(json!("blue"))),
            (Form, true, string(), "color=", one(json!(""))),
            (Form, true, string(), "colour=blue", Found::Absent),
            (Form, true, string(), "c%6Flor=dark+blue%21", one(json!("dark blue!"))),
            (Form, true, list(), "color=blue&x=y&color=black&color=brown", colors()),
            (Form, false, list(), "color=blue,black,brown", colors()),
            (Form, false, list(), "color=a%2Cb,c", one(json!(["a,b", "c"]))),
            (Form, false, list(), "color=", one(json!([]))),
            (Form, true, rgb(), "R=100&G=200&B=150&x=y", mixed()),
            (Form, true, rgb(), "x=y", Found::Absent),
            (Form, false, rgb(), "color=R,100,G,200,B,150", mixed()),
            (SpaceDelimited, false, list(), "color=blue%20black+brown", colors()),
            (PipeDelimited, false, list(), "color=blue|black%7Cbrown", colors()),
            (PipeDelimited, false, rgb(), "color=R|100|G|200|B|150", mixed()),
            (
                DeepObject,
                true,
                deep(),
                "color[a][b]=1&color[list][]=2&color[list][]=3&color[in][0][b]=4&color[in][0][c]=5",
                one(json!({"a": {"b": 1}, "list": [2, 3], "in": [{"b": 4, "c": "5"}]})),
            ),
            (DeepObject, true, rgb(), "color[R]=100&color%5BG%5D=200&color[B]=150&color=x", mixed()),
        ] {
            let parameter = parameter(ParameterPlace::Query, style, explodes);
            let found = of_pairs(&parameter, &shape, &Pairs::of_query(query));
            assert_eq!(found, expected, "{style:?} {explodes} {query}");
        }
    }

    #[test]
    fn path_parameters_have_the_styles_of_openapi() {
        use ParameterStyle::{Label, Matrix, Simple};
        let colors = || one(json!(["blue", "black"]));
        let mixed = || one(json!({"R": 100, "G": 200}));
        for (style, explodes, shape, text, expected) in [
            (Simple, false, string(), "dark%20blue+", one(json!("dark blue+"))),
            (Simple, false, list(), "blue,black", colors()),
            (Simple, false, rgb(), "R,100,G,200", mixed()),
            (Simple, true, rgb(), "R=100,G=200", mixed()),
            (Label, false, string(), ".blue", one(json!("blue"))),
            (Label, false, list(), ".blue,black", colors()),
            (Label, true, list(), ".blue.black", colors()),
            (Label, true, rgb(), ".R=100.G=200", mixed()),
            (Matrix, false, string(), ";color=blue", one(json!("blue"))),
            (Matrix, false, list(), ";color=blue,black", colors()),
            (Matrix, true, list(), ";color=blue;color=black", colors()),
            (Matrix, false, rgb(), ";color=R,100,G,200", mixed()),
            (Matrix, true, rgb(), ";R=100;G=200", mixed()),
        ] {
            let parameter = parameter(ParameterPlace::Path, style, explodes);
            assert_eq!(of_text(&parameter, &shape, text), expected, "{style:?} {explodes} {text}");
        }
    }

    #[test]
    fn headers_and_cookies_are_lists_with_commas() {
        let header = parameter(ParameterPlace::Header, ParameterStyle::Simple, false);
        assert_eq!(of_text(&header, &list(), "a%20, b"), one(json!(["a%20", "b"])));
        let cookie = parameter(ParameterPlace::Cookie, ParameterStyle::Form, true);
        let pairs = Pairs::of_cookies(["a=b; color=x,y", "c=d"].into_iter());
        assert_eq!(of_pairs(&cookie, &list(), &pairs), one(json!(["x", "y"])));
        let json_style = parameter(ParameterPlace::Query, ParameterStyle::Json, false);
        let pairs = Pairs::of_query("color=%7B%22a%22:1%7D");
        assert_eq!(of_pairs(&json_style, &Shape::default(), &pairs), one(json!({"a": 1})));
    }

    #[test]
    fn text_without_the_form_of_its_style_is_malformed() {
        use ParameterStyle::{DeepObject, Form, Json, Label, Matrix, Simple};
        for (style, explodes, shape, text) in [
            (Label, false, string(), "blue"),
            (Matrix, false, string(), "blue"),
            (Matrix, false, string(), ";colour=blue"),
            (Simple, false, rgb(), "R,100,G"),
            (Simple, true, rgb(), "R"),
            (Simple, false, rgb(), "R,1,R,2"),
            (Json, false, rgb(), "{"),
        ] {
            let parameter = parameter(ParameterPlace::Path, style, explodes);
            let found = of_text(&parameter, &shape, text);
            assert!(matches!(found, Found::Malformed(_)), "{style:?} {text}: {found:?}");
        }
        let many = "color=a,".to_owned() + &"a,".repeat(ITEMS_MAX);
        for (style, explodes, shape, query) in [
            (Form, true, string(), "color=a&color=b"),
            (Form, false, list(), &*many),
            (DeepObject, true, rgb(), "color[R]=1&color[R]=2"),
            (DeepObject, true, rgb(), "color[R]=1&color[R][x]=2"),
            (DeepObject, true, deep(), "color[list][x]=2"),
            (DeepObject, true, deep(), "color[list][7]=2"),
            (DeepObject, true, deep(), "color[x][a][a][a][a][a][a][a][a]=2"),
        ] {
            let parameter = parameter(ParameterPlace::Query, style, explodes);
            let found = of_pairs(&parameter, &shape, &Pairs::of_query(query));
            assert!(matches!(found, Found::Malformed(_)), "{style:?} {query}: {found:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "[a-z%&=;,.\\[\\]|+é0-9]{0,60}", style in 0_usize..8, explodes: bool) {
            use ParameterStyle::{DeepObject, Form, Json, Label, Matrix, PipeDelimited, Simple, SpaceDelimited};
            let style = [Simple, Label, Matrix, Form, SpaceDelimited, PipeDelimited, DeepObject, Json][style];
            for shape in [string(), list(), rgb(), Shape::default()] {
                let of_query = parameter(ParameterPlace::Query, style, explodes);
                of_pairs(&of_query, &shape, &Pairs::of_query(&text));
                of_text(&parameter(ParameterPlace::Path, style, explodes), &shape, &text);
            }
        }
    }
}
