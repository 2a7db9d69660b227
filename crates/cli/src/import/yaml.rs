//! YAML as a JSON value. Owns the typing of plain scalars (the core schema) and the refusal of what a configuration does
//! not need: aliases, which can make a small file huge, tags, and more than one document. Called by `notation`.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

const DEEPEST: usize = 32;

pub(super) fn parse(text: &str) -> Result<Value, String> {
    let mut events = Parser::new_from_str(text);
    let mut value = None;
    loop {
        match next(&mut events)? {
            Event::StreamEnd => return Ok(value.unwrap_or(Value::Null)),
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::DocumentStart(_) if value.is_some() => return Err("it holds more than one document".to_owned()),
            Event::DocumentStart(_) => {
                let first = next(&mut events)?;
                value = Some(node(first, &mut events, 0)?);
            }
            _ => return Err("it is not one value".to_owned()),
        }
    }
}

type Events<'a> = Parser<'a, saphyr_parser::StrInput<'a>>;

fn next<'a>(events: &mut Events<'a>) -> Result<Event<'a>, String> {
    match events.next_event() {
        Some(Ok((event, _))) => Ok(event),
        Some(Err(error)) => Err(format!("line {}: {}", error.marker().line(), error.info())),
        None => Ok(Event::StreamEnd),
    }
}

fn node(event: Event<'_>, events: &mut Events<'_>, depth: usize) -> Result<Value, String> {
    if depth > DEEPEST {
        return Err("it is nested too deeply".to_owned());
    }
    match event {
        Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
            Err("tags are not taken".to_owned())
        }
        Event::Scalar(text, ScalarStyle::Plain, ..) => Ok(plain(&text)),
        Event::Scalar(text, ..) => Ok(Value::from(text.as_ref())),
        Event::SequenceStart(..) => {
            let mut list = Vec::new();
            loop {
                match next(events)? {
                    Event::SequenceEnd => return Ok(Value::Array(list)),
                    event => list.push(node(event, events, depth + 1)?),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut map = Map::new();
            loop {
                let key = match next(events)? {
                    Event::MappingEnd => return Ok(Value::Object(map)),
                    Event::Scalar(key, ..) => key.into_owned(),
                    _ => return Err("a key is no text".to_owned()),
                };
                let event = next(events)?;
                let value = node(event, events, depth + 1)?;
                if map.insert(key.clone(), value).is_some() {
                    return Err(format!("`{key}` is there twice"));
                }
            }
        }
        Event::Alias(_) => Err("aliases are not taken".to_owned()),
        _ => Err("it ends too early".to_owned()),
    }
}

fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        text => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => Value::from(number),
            (_, Ok(number)) if text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) => {
                Value::from(number)
            }
            _ => Value::from(text),
        },
    }
}
