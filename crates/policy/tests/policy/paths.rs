//! The path language.

use std::path::{Path, PathBuf};

use cofferdam_policy::PathExpr;
use cofferdam_policy::path::{PathError, name_matches, name_matches_ignoring_case};

use crate::places;

#[test]
fn expressions_expand_to_absolute_paths() {
    let table = [
        ("/etc//x/./y", "/etc/x/y"),
        ("~", "/home/u"),
        ("~/a/", "/home/u/a"),
        ("./a", "/home/u/p/a"),
        ("a/b", "/home/u/p/a/b"),
        (".", "/home/u/p"),
        ("{git}/hooks", "/home/u/p/.git/hooks"),
        ("{git}", "/home/u/p/.git"),
        ("${CARGO_HOME:-~/.cargo}/registry", "/home/u/.cargo/registry"),
    ];
    for (text, expected) in table {
        assert_eq!(PathExpr::parse(text).unwrap().expand(&places()), [PathBuf::from(expected)], "{text}");
    }
}

#[test]
fn ambiguous_or_climbing_paths_are_refused() {
    let refused = ["", "..", "a/../b", "~/..", "~root/x", "a\0b", "*/x", "/a*/b", "${X}/y", "${X:-$Y}", "${:-/a}"];
    for text in refused.iter().chain(&["${X:-/a}b", "${X:-/a*}/b", "${X:-/a/../b}", "${X:-{git}/x}"]) {
        assert!(PathExpr::parse(text).is_err(), "{text}");
    }
    // A brace that is no base is a plain name, not a glued base.
    assert_eq!(PathExpr::parse("{git}x").unwrap().expand(&places()), [PathBuf::from("/home/u/p/{git}x")]);
}

#[test]
fn a_literal_path_is_never_a_glob() {
    assert!(PathExpr::parse("/a/*.key").unwrap().is_glob());
    assert!(PathExpr::parse("./.env*").unwrap().is_glob());
    let literal = PathExpr::literal(Path::new("/a*/b*")).unwrap();
    assert!(!literal.is_glob());
    assert_eq!(literal.expand(&places()), [PathBuf::from("/a*/b*")]);
    assert_eq!(PathExpr::literal(Path::new("/a/../b")), Err(PathError::Traversal("/a/../b".to_owned())));
}

#[test]
fn a_variable_that_holds_no_absolute_path_counts_as_unset() {
    let expr = PathExpr::parse("${X:-/fallback}/y").unwrap();
    for (value, expected) in
        [("/set", "/set/y"), ("relative", "/fallback/y"), ("", "/fallback/y"), ("/a/../b", "/fallback/y")]
    {
        let mut places = places();
        places.variables.push(("X".to_owned(), value.into()));
        assert_eq!(expr.expand(&places), [PathBuf::from(expected)], "{value}");
    }
}

#[test]
fn stars_match_any_run_of_bytes() {
    let table = [
        ("*", "", true),
        ("a*a", "a", false),
        ("a*a", "aa", true),
        ("*_KEY", "API_KEY", true),
        ("*_KEY", "API_KEYS", false),
        ("a*b*c", "a-bb-c", true),
        ("a*b*c", "acb", false),
        ("exact", "exact", true),
        ("exact", "exactly", false),
        ("", "", true),
        ("*ab", "aab", true),
    ];
    for (pattern, name, expected) in table {
        assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
    }
    assert!(name_matches_ignoring_case("*_TOKEN", "npm_token"));
}

#[test]
fn any_directory_of_the_project_is_written_with_two_stars() {
    let deep = PathExpr::parse("./**/config/*.key").unwrap();
    assert!(deep.is_deep() && deep.is_glob() && !deep.is_one_path());
    assert_eq!((deep.tail(), deep.as_str()), (2, "./**/config/*.key"));
    assert_eq!(deep.expand(&places()), [PathBuf::from("/home/u/p/config/*.key")], "the place in the project itself");
    assert!(!deep.is_same_place(&PathExpr::parse("./config/*.key").unwrap()));
    let all = PathExpr::parse("./**").unwrap();
    assert!(!all.is_deep() && all.is_glob(), "every name of one directory");
    for bad in ["~/**/.env", "/**/.env", "{git}/**/x", "${X:-~/x}/**/y"] {
        assert!(matches!(PathExpr::parse(bad), Err(PathError::DepthOutsideProject(_))), "{bad}");
    }
    for bad in ["./a/**/b", "./**/a*/b", "./**/**/b"] {
        assert!(matches!(PathExpr::parse(bad), Err(PathError::GlobNotLast(_))), "{bad}");
    }
    let there = PathBuf::from("/home/u/p/**/x");
    assert!(PathExpr::for_path(&there, &places()).is_none(), "a directory that is called so has no expression");
}
