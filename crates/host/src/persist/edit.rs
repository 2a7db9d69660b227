//! The text of a policy file with rules added. Owns that comments, order and formatting stay as they are, and that a file
//! never says two things about one place; reads and writes nothing. Called by `persist`.

use cofferdam_policy::{Access, Draft, Endpoint, NetworkPart, PathExpr, Places, Setting};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// A rule to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) access: Access,
    pub(super) path: PathExpr,
    pub(super) optional: bool,
    pub(super) reason: String,
}

const INDENT: &str = "\n  ";

/// `text` with these rules. What it says about the same place and would count instead is taken out. The error is the key
/// that holds something else than a list.
pub(super) fn edit(text: &str, entries: &[Entry], places: &Places) -> Result<String, String> {
    if entries.is_empty() {
        return Ok(text.to_owned());
    }
    // The caller has parsed the file, with errors of its own.
    let mut document: DocumentMut = text.parse().map_err(|_| "the file".to_owned())?;
    for entry in entries {
        let files = files_table(&mut document)?;
        for access in [Access::Deny, Access::Protect, Access::Read, Access::Overlay, Access::Write] {
            let contradicts = access != entry.access && (access < entry.access || entry.access == Access::Deny);
            if contradicts && let Some(list) = files.get_mut(&access.to_string()) {
                remove(list, entry, places);
            }
        }
        add(files, entry, places)?;
    }
    Ok(document.to_string())
}

/// `text` with the settings of a draft that are no paths. What the file says otherwise stays; the second part names it.
pub(super) fn add_settings(text: &str, draft: &Draft) -> Result<(String, Vec<String>), String> {
    let mut document: DocumentMut = text.parse().map_err(|_| "the file".to_owned())?;
    let mut new: DocumentMut = draft.to_toml().parse().map_err(|_| "the draft".to_owned())?;
    new.remove("files");
    let mut kept = Vec::new();
    join(document.as_table_mut(), new.as_table(), "", &mut kept);
    Ok((document.to_string(), kept))
}

fn join(known: &mut dyn TableLike, new: &dyn TableLike, above: &str, kept: &mut Vec<String>) {
    for (name, item) in new.iter() {
        let key = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
        match known.get_mut(name) {
            None => {
                known.insert(name, plain(item));
            }
            Some(own) => match (own.as_table_like_mut(), item.as_table_like()) {
                (Some(own), Some(more)) => join(own, more, &key, kept),
                _ => join_value(own, item, &key, kept),
            },
        }
    }
}

/// Lists add up, other values stay.
fn join_value(own: &mut Item, new: &Item, key: &str, kept: &mut Vec<String>) {
    let text = |item: &Item| item.to_string().trim().to_owned();
    let (before, asked) = (text(own), text(new));
    // The one list that may stand as a single name.
    if key == "preset"
        && let Some(name) = own.as_str().map(str::to_owned)
    {
        *own = Item::Value(Value::Array(Array::from_iter([name])));
    }
    let (Some(own), Some(more)) = (own.as_array_mut(), new.as_array()) else {
        if before != asked {
            kept.push(format!("{key} = {asked}: stays {before}"));
        }
        return;
    };
    // A comment behind an entry belongs to the text of the next one.
    let bare = |value: &Value| {
        let mut value = value.clone();
        value.decor_mut().clear();
        value
    };
    let written: Vec<String> = own.iter().map(|value| bare(value).to_string()).collect();
    for value in more.iter().map(bare).filter(|value| !written.contains(&value.to_string())) {
        append(own, value);
    }
}

/// Without the comments of the draft, which are told on the screen.
fn plain(item: &Item) -> Item {
    let mut item = item.clone();
    if let Some(table) = item.as_table_mut() {
        table.decor_mut().clear();
    }
    item
}

fn files_table(document: &mut DocumentMut) -> Result<&mut dyn TableLike, String> {
    let files = document.entry("files").or_insert_with(|| Item::Table(Table::new()));
    files.as_table_like_mut().ok_or_else(|| "files".to_owned())
}

fn add(files: &mut dyn TableLike, entry: &Entry, places: &Places) -> Result<(), String> {
    let key = entry.access.to_string();
    let list = files.entry(&key).or_insert_with(|| Item::Value(Value::Array(Array::new())));
    match list {
        Item::Value(Value::Array(array)) => {
            if !array.iter().any(|value| names(value, entry, places)) {
                append(array, value_of(entry));
            }
            Ok(())
        }
        Item::ArrayOfTables(tables) => {
            let known = tables.iter().any(|table| text_names(table.get("path").and_then(Item::as_str), entry, places));
            if !known {
                tables.push(inline(entry).into_table());
            }
            Ok(())
        }
        _ => Err(format!("files.{key}")),
    }
}

/// At the end of the list, in its own style: beside the others, or on a line of its own.
fn append(array: &mut Array, mut value: Value) {
    let trailing = array.trailing().as_str().unwrap_or_default().to_owned();
    let in_lines = array.is_empty() || trailing.contains('\n') || array.iter().any(begins_a_line);
    if !in_lines {
        array.push(value);
        return;
    }
    // A comment behind the last entry stays behind it.
    let mut before = take_suffix(array);
    before.push_str(trailing.trim_end());
    value.decor_mut().set_prefix(format!("{before}{INDENT}"));
    array.push_formatted(value);
    array.set_trailing("\n");
    array.set_trailing_comma(true);
}

fn begins_a_line(value: &Value) -> bool {
    value.decor().prefix().and_then(|prefix| prefix.as_str()).is_some_and(|prefix| prefix.contains('\n'))
}

fn take_suffix(array: &mut Array) -> String {
    let last = array.len().checked_sub(1).and_then(|last| array.get_mut(last));
    let Some(decor) = last.map(Value::decor_mut) else { return String::new() };
    let suffix = decor.suffix().and_then(|suffix| suffix.as_str()).unwrap_or_default().trim_end().to_owned();
    decor.set_suffix("");
    suffix
}

fn value_of(entry: &Entry) -> Value {
    if !entry.optional && entry.reason.is_empty() {
        return Value::from(entry.path.as_str());
    }
    Value::InlineTable(inline(entry))
}

fn inline(entry: &Entry) -> InlineTable {
    let mut table = InlineTable::new();
    table.insert("path", entry.path.as_str().into());
    if entry.optional {
        table.insert("optional", true.into());
    }
    if !entry.reason.is_empty() {
        table.insert("reason", entry.reason.as_str().into());
    }
    table
}

fn remove(list: &mut Item, entry: &Entry, places: &Places) {
    remove_where(list, "path", &|path| text_names(path, entry, places));
}

/// Takes out the entries that are meant: a text, or a table with the text under this key.
fn remove_where(list: &mut Item, key: &str, is_meant: &dyn Fn(Option<&str>) -> bool) {
    match list {
        Item::Value(Value::Array(array)) => {
            for at in (0..array.len()).rev() {
                if array.get(at).is_some_and(|value| is_meant(text_of(value, key))) {
                    remove_from(array, at);
                }
            }
        }
        Item::ArrayOfTables(tables) => tables.retain(|table| !is_meant(table.get(key).and_then(Item::as_str))),
        _ => {}
    }
}

/// `text` without a rule about a path or about all connections to a host.
pub(super) fn take_out(text: &str, rule: &Setting) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|_| "the file".to_owned())?;
    let (table, list) = match rule {
        Setting::File { access, .. } => ("files", access.to_string()),
        Setting::NetworkPart(part) => ("network", part.key().to_owned()),
        _ => return Err(rule.to_string()),
    };
    let Some(lists) = document.get_mut(table).and_then(Item::as_table_like_mut) else { return Ok(text.to_owned()) };
    let Some(entries) = lists.get_mut(&list) else { return Ok(text.to_owned()) };
    match rule {
        Setting::File { path, .. } => remove_where(entries, "path", &|text| {
            text.and_then(|text| PathExpr::parse(text).ok()).is_some_and(|found| found.as_str() == path.as_str())
        }),
        Setting::NetworkPart(NetworkPart::Allow(rule) | NetworkPart::Deny(rule)) => {
            let meant = rule.endpoint.to_string();
            let read = |text: &str| if list == "deny" { Endpoint::parse(text) } else { Endpoint::parse_allow(text) };
            remove_where(entries, "host", &|text| {
                text.is_some_and(|text| read(text).is_ok_and(|it| it.to_string() == meant))
            });
        }
        _ => {}
    }
    // An empty list says nothing, and may have been made for this entry.
    if entries.as_array().is_some_and(Array::is_empty) {
        lists.remove(&list);
    }
    Ok(document.to_string())
}

/// What stands before an entry may be a comment behind the one before it.
fn remove_from(array: &mut Array, at: usize) {
    let removed = array.remove(at);
    let prefix = removed.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    if !prefix.contains('#') {
        return;
    }
    let comment = prefix.trim_end().to_owned();
    if let Some(next) = array.get_mut(at) {
        let own = next.decor().prefix().and_then(|own| own.as_str()).unwrap_or_default().to_owned();
        next.decor_mut().set_prefix(format!("{comment}{own}"));
    } else {
        let own = array.trailing().as_str().unwrap_or_default().to_owned();
        array.set_trailing(format!("{comment}{own}"));
    }
}

fn names(value: &Value, entry: &Entry, places: &Places) -> bool {
    text_names(text_of(value, "path"), entry, places)
}

/// Of a table that says more than a whole rule does (methods, paths) nothing is taken.
fn text_of<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    match value {
        Value::String(text) => Some(text.value().as_str()),
        Value::InlineTable(table) if !table.contains_key("methods") && !table.contains_key("paths") => {
            table.get(key).and_then(Value::as_str)
        }
        _ => None,
    }
}

fn text_names(path: Option<&str>, entry: &Entry, places: &Places) -> bool {
    let Some(path) = path.and_then(|path| PathExpr::parse(path).ok()) else { return false };
    let here = path.expand(places);
    let shape = |path: &PathExpr| (path.is_glob(), path.is_deep());
    path.is_same_place(&entry.path)
        || !here.is_empty() && shape(&path) == shape(&entry.path) && here == entry.path.expand(places)
}
