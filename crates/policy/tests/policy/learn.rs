//! From what a run touched to the smallest sensible policy.

use cofferdam_policy::{Accessed, Draft, Layer, Learned, Touch, index_of, learn, rules_in_force};

use crate::{layer, places, resolved};

fn learned(accessed: &[(Touch, &str)]) -> Learned {
    let policy = resolved(&[layer(Layer::User, "mode = \"dynamic\"\nfiles.read = [\"~/given\"]")]).unwrap();
    let accessed: Vec<Accessed> =
        accessed.iter().map(|(touch, path)| Accessed { path: (*path).into(), touch: *touch }).collect();
    learn(&accessed, &index_of(rules_in_force(&policy, &places())), &places())
}

/// The grants as `access path`, in order.
fn grants(learned: &Learned) -> Vec<String> {
    let settings = learned.settings.iter().map(ToString::to_string);
    settings.map(|text| text.replace("files.", "").replace(" = \"", " ").replace('"', "")).collect()
}

#[test]
fn the_smallest_sensible_grants() {
    use Touch::{Create, Exec, List, Read, Write};
    let many: Vec<String> = (0..6).map(|n| format!("/home/u/data/set/{n}.csv")).collect();
    let many: Vec<(Touch, &str)> = many.iter().map(|path| (Read, path.as_str())).collect();
    for (what, accessed, expected) in [
        ("readable already", vec![(Read, "/usr/bin/ls"), (Exec, "/bin/sh"), (Read, "/home/u/given/x")], vec![]),
        ("the project", vec![(Read, "/home/u/p/a"), (Write, "/home/u/p/b"), (Create, "/home/u/p/c/d")], vec![]),
        ("one file", vec![(Read, "/home/u/notes.txt")], vec!["read ~/notes.txt"]),
        (
            "three files",
            vec![(Read, "/srv/x/a"), (Read, "/srv/x/b"), (Read, "/srv/x/c")],
            vec!["read /srv/x/a", "read /srv/x/b", "read /srv/x/c"],
        ),
        ("many files of one directory", many, vec!["read ~/data/set"]),
        (
            "many files of the home directory",
            vec![(Read, "/home/u/a"), (Read, "/home/u/b"), (Read, "/home/u/c"), (Read, "/home/u/d")],
            vec!["read ~/a", "read ~/b", "read ~/c", "read ~/d"],
        ),
        (
            "many below the root",
            vec![(Read, "/srv/a"), (Read, "/srv/b"), (Read, "/srv/c"), (Read, "/srv/d")],
            vec!["read /srv/a", "read /srv/b", "read /srv/c", "read /srv/d"],
        ),
        (
            "beside a secret",
            vec![
                (Read, "/home/u/.config/a"),
                (Read, "/home/u/.config/b"),
                (Read, "/home/u/.config/c"),
                (Read, "/home/u/.config/d"),
            ],
            vec!["read ~/.config/a", "read ~/.config/b", "read ~/.config/c", "read ~/.config/d"],
        ),
        ("a listed directory", vec![(List, "/home/u/data"), (Read, "/home/u/data/x")], vec!["read ~/data"]),
        ("a listed home", vec![(List, "/home/u"), (List, "/home"), (List, "/home/u/.config")], vec![]),
        (
            "a toolchain",
            vec![(Read, "/home/u/.opam/default/bin/ocaml"), (Exec, "/home/u/.ghcup/bin/ghc")],
            vec!["read ~/.ghcup", "read ~/.cabal", "read ~/.stack", "read ~/.opam"],
        ),
        ("a written file", vec![(Write, "/home/u/log.txt")], vec!["write ~/log.txt"]),
        ("a made file", vec![(Create, "/home/u/out/a"), (Read, "/home/u/out/b")], vec!["write ~/out"]),
        ("a made file in the home", vec![(Create, "/home/u/made")], vec![]),
        (
            "a cache",
            vec![(Create, "/home/u/.cache/tool/x/y"), (Read, "/home/u/.cache/tool/z")],
            vec!["overlay ~/.cache/tool"],
        ),
        ("a toolchain's cache", vec![(Write, "/home/u/.opam/log/x")], vec!["overlay ~/.opam"]),
        ("a secret", vec![(Read, "/home/u/.ssh/id_ed25519"), (Read, "/home/u/.aws/credentials")], vec![]),
        ("a protected name", vec![(Write, "/home/u/p/.git/hooks/pre-commit")], vec![]),
    ] {
        assert_eq!(grants(&learned(&accessed)), expected, "{what}");
    }
}

#[test]
fn secrets_are_reported_with_their_rule_and_never_granted() {
    let learned =
        learned(&[(Touch::Read, "/home/u/.ssh/id"), (Touch::List, "/home/u/.ssh"), (Touch::Read, "/home/u/.ssh/id")]);
    assert!(learned.settings.is_empty());
    let refused: Vec<&str> = learned.refused.iter().filter_map(|(path, _)| path.to_str()).collect();
    assert_eq!(refused, ["/home/u/.ssh", "/home/u/.ssh/id"]);
    assert!(learned.refused[0].1.to_string().contains("profiles/secrets.toml"));
}

#[test]
fn what_nothing_sensible_grants_is_left_to_the_user() {
    let learned = learned(&[(Touch::Create, "/home/u/made"), (Touch::List, "/home/u"), (Touch::Read, "/srv/x/a*b")]);
    assert!(learned.settings.is_empty());
    let mut left: Vec<&str> = learned.left.iter().filter_map(|path| path.to_str()).collect();
    left.sort_unstable();
    assert_eq!(left, ["/home/u", "/home/u/made", "/srv/x/a*b"]);
}

#[test]
fn what_was_learned_decides_about_every_path_that_was_granted() {
    let accessed: Vec<String> = (0..9).map(|n| format!("/srv/deep/{}/{n}", n % 2)).collect();
    let accessed: Vec<(Touch, &str)> = accessed.iter().map(|path| (Touch::Read, path.as_str())).collect();
    let draft = Draft { settings: learned(&accessed).settings, ..Draft::default() };
    let text = format!("mode = \"dynamic\"\n{}", draft.to_toml());
    let policy = resolved(&[layer(Layer::User, &text)]).unwrap();
    let rules = index_of(rules_in_force(&policy, &places()));
    for (_, path) in accessed {
        let rule = rules.deciding(path.as_ref()).expect(path);
        assert_eq!(rule.rule.origin.layer, Layer::User);
    }
}
