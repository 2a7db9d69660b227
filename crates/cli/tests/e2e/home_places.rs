//! A made-up home with hundreds of places where programs keep things, and what a session sees of each. The result is a table
//! that a reviewer can read (docs/home-places.md); with `COFFERDAM_UPDATE=1` the test writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::support::Place;

/// Paths below the home, one a line.
const PLACES: &str = include_str!("home_places.txt");
const TABLE: &str = "../../docs/home-places.md";

/// Prints, for each line of `places`, how opening it ended.
const WALK: &str = r#"
while IFS= read -r place; do
    if text=$(cat "$HOME/$place" 2>error); then
        case $text in
            *CANARY*) echo "readable $place" ;;
            *blue*) echo "masked $place" ;;
            *) echo "empty $place" ;;
        esac
    else
        case $(cat error) in
            *"No such file"*|*"No such device or address"*) echo "hidden $place" ;;
            # A node that is no file stands in for it.
            *"Permission denied"*) if [ -S "$HOME/$place" ]; then echo "hidden $place"; else echo "refused $place"; fi ;;
            *) echo "other $place" ;;
        esac
    fi
done < places
"#;

fn walk(place: &Place, flags: &[&str]) -> BTreeMap<String, String> {
    let seen = place.run(flags, &["bash", "-c", WALK]).ok();
    let line = |line: &str| line.split_once(' ').map(|(state, place)| (place.to_owned(), state.to_owned()));
    seen.lines().filter_map(line).collect()
}

fn table(places: &[&str], fixed: &BTreeMap<String, String>, asking: &BTreeMap<String, String>) -> String {
    let mut text = String::from(
        "# What a session sees of a home\n\nMade by the test `a_home_of_many_places_is_seen_as_recorded`, which walks a made-up home in which every place is a \
         file with a\ntoken and a setting. `readable`: the token was read. `masked`: the file opens without its token. `empty`: it opens and is \
         empty.\n`hidden`: there is no such file. `refused`: it cannot be opened. `asked`: the open waits until a person decides.\n\n",
    );
    let count = |seen: &BTreeMap<String, String>, state: &str| seen.values().filter(|one| *one == state).count();
    text.push_str("|state|static mode|dynamic mode|\n|-|-|-|\n");
    for state in ["readable", "masked", "empty", "hidden", "refused", "asked"] {
        writeln!(text, "|{state}|{}|{}|", count(fixed, state), count(asking, state)).expect("memory takes it");
    }
    text.push_str("\n|place|static mode|dynamic mode|\n|-|-|-|\n");
    for place in places {
        let state = |seen: &BTreeMap<String, String>| seen.get(*place).cloned().unwrap_or_else(|| "unseen".to_owned());
        writeln!(text, "|`~/{place}`|{}|{}|", state(fixed), state(asking)).expect("memory takes it");
    }
    text
}

#[test]
fn a_home_of_many_places_is_seen_as_recorded() {
    let place = Place::new();
    let places: Vec<&str> = PLACES.lines().collect();
    for name in &places {
        place.write(&format!("home:{name}"), "colour = blue\ntoken = CANARY\n");
    }
    place.write("places", PLACES);
    let fixed = walk(&place, &["--mode", "static"]);
    let mut asking = walk(&place, &["--on-unknown", "deny"]);
    // What would wait for a person is refused here, where there is none.
    for state in asking.values_mut().filter(|state| *state == "refused") {
        *state = "asked".to_owned();
    }
    let seen = table(&places, &fixed, &asking);
    let recorded = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join(TABLE);
    if std::env::var_os("COFFERDAM_UPDATE").is_some() {
        std::fs::write(&recorded, &seen).expect("the table can be written");
    }
    let recorded = std::fs::read_to_string(&recorded).expect("the table exists");
    let differ: Vec<(&str, &str)> = recorded.lines().zip(seen.lines()).filter(|(before, now)| before != now).collect();
    assert!(recorded == seen, "COFFERDAM_UPDATE=1 writes it anew; recorded and seen:\n{differ:#?}");
}
