//! git over random repositories, inside and outside: where no hidden or protected name differs between what an operation
//! involves, both do the same; where one does, nothing is lost, no blob is emptied, and the last lines name the file and the
//! command that sets it right.
//!
//! Runs for two repositories and at least 25 s in each mode; `COFFERDAM_PROPERTY_SECONDS` asks for more,
//! `COFFERDAM_PROPERTY_SEED` repeats one repository.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Place, Ran, binary, finish};

const OPERATIONS: [&str; 6] = [
    "git add -A",
    "git commit -qam inside",
    "git checkout -q other",
    "git merge -q -m merged other",
    "git stash -q",
    "git rebase -q other",
];

/// Names that a session covers where they exist, or that it must not make.
const COVERED: [&str; 4] = [".env", ".env.local", ".vscode/settings.json", ".mcp.json"];

/// A generator of numbers that a failure can be repeated with.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn one_in(&mut self, most: u64) -> bool {
        self.below(most) == 0
    }

    fn word(&mut self) -> String {
        format!("WORD={:x}", self.below(1 << 40))
    }
}

/// The script that makes a repository, and whether a covered name differs in it.
fn repository(numbers: &mut Numbers) -> (String, bool) {
    let mut script = "git init -q -b main .\n".to_owned();
    let write = |script: &mut String, name: &str, text: &str| {
        for part in ["mkdir -p \"$(dirname '", name, "')\"; echo '", text, "' > '", name, "'\n"] {
            script.push_str(part);
        }
    };
    let plain = ["a", "b/c", "z", ".env.example", ".env.test", "b/.env.sample", "src/x y"];
    for name in plain {
        write(&mut script, name, &numbers.word());
    }
    let ignores = numbers.one_in(2);
    if ignores {
        write(&mut script, ".gitignore", ".env.production");
        write(&mut script, ".env.production", "SECRET=hunter2");
    }
    let tracked: Vec<&str> = COVERED.into_iter().filter(|_| numbers.one_in(2)).collect();
    for name in &tracked {
        write(&mut script, name, &numbers.word());
    }
    script.push_str("git add -A; git add -f .env* 2>/dev/null; git rm -q --cached --ignore-unmatch .env.production; git commit -qm base\n");
    script.push_str("git checkout -q -b other\n");
    for name in plain.into_iter().filter(|_| numbers.one_in(2)).collect::<Vec<_>>() {
        write(&mut script, name, &numbers.word());
    }
    write(&mut script, "on-other", "x");
    let mut differs = false;
    if numbers.one_in(3) {
        let name = COVERED[usize::try_from(numbers.below(4)).expect("small")];
        write(&mut script, name, &numbers.word());
        differs = true;
    }
    script.push_str("git add -A; git add -f .env* 2>/dev/null; git rm -q --cached --ignore-unmatch .env.production; git commit -qm other; git checkout -q main\n");
    if numbers.one_in(2) {
        write(&mut script, "on-main", "y");
        script.push_str("git add on-main; git commit -qm main\n");
    }
    // Local changes.
    if numbers.one_in(2) {
        write(
            &mut script,
            ["z", "new", ".env.example"][usize::try_from(numbers.below(3)).expect("small")],
            &numbers.word(),
        );
    }
    if let Some(name) = tracked.iter().find(|name| name.starts_with(".env")).filter(|_| numbers.one_in(3)) {
        write(&mut script, name, "SECRET=hunter2");
        differs = true;
    }
    if ignores {
        write(&mut script, ".env.production", "SECRET=hunter2");
    }
    (script, differs)
}

/// Everything about a repository but times and names of commits.
const SNAPSHOT: &str = "git symbolic-ref -q HEAD; git rev-parse 'HEAD^{tree}'; git status --porcelain; git ls-files -s
    git rev-parse -q --verify 'stash^{tree}'; git log --format=%s
    find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha1sum";

/// Every blob by which a covered name is known: in commits, stashes and the index.
const BLOBS: &str =
    "for tree in $(git rev-list --all --reflog) $(git write-tree 2>/dev/null); do git ls-tree -r $tree; done |
    grep -E '\\.env$|\\.env\\.local$|settings.json$|\\.mcp\\.json$' | awk '{print $3}' | sort -u";

fn at(place: &Place, directory: &Path, script: &str) -> Ran {
    finish(place.command("bash").args(["-c", script]).current_dir(directory), b"")
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

/// One operation on two copies of one repository.
fn try_one(place: &Place, mode: &str, seed: u64, operation: &str, counts: &mut [u32; 3]) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (script, differs) = repository(&mut numbers);
    let about = format!("{mode}, COFFERDAM_PROPERTY_SEED={seed}, {operation}");
    let (inner, outer) = (place.project.clone(), place.home.join("outside"));
    let fresh = "chmod -R u+rwX . && find . -mindepth 1 -delete";
    at(place, &inner, fresh).ok();
    at(place, &inner, &script).ok();
    at(place, &place.home, "rm -rf outside && cp -a project outside").ok();
    let known = lines(&at(place, &inner, BLOBS).ok());
    let commits = at(place, &inner, "git rev-list --all").ok();
    let secret = |directory: &Path| at(place, directory, "grep -rl --exclude-dir=.git hunter2 . | sort").ok();
    let secrets = secret(&inner);

    let ran = finish(place.command(binary()).args(["run", "--mode", mode, "--", "bash", "-c", operation]), b"");
    let outside = at(place, &outer, operation);
    let (mine, theirs) = (at(place, &inner, SNAPSHOT).out, at(place, &outer, SNAPSHOT).out);
    if !differs {
        assert_eq!(mine, theirs, "{about}\n{}\noutside:\n{}\n{script}", ran.err, outside.err);
        assert_eq!(ran.code, outside.code, "{about}\n{}", ran.err);
        counts[0] += 1;
        return;
    }
    // Nothing is lost.
    for commit in commits.lines() {
        at(place, &inner, &format!("git cat-file -e {commit}")).ok();
    }
    assert_eq!(secret(&inner), secrets, "{about}: a local secret was changed\n{}", ran.err);
    // No blob is emptied, and none is made of what a session could not see.
    let after = lines(&at(place, &inner, BLOBS).ok());
    let made: Vec<&String> = after.difference(&known).collect();
    assert!(made.is_empty(), "{about}: new blobs {made:?}\n{}\n{script}", ran.err);
    counts[1] += 1;
    if mine == theirs {
        return;
    }
    // And where the outcome is another than outside, it is said, with what sets it right.
    let name = COVERED.iter().find(|name| ran.err.contains(&format!("sandbox: {name} is ")));
    assert!(name.is_some(), "{about}: no line\n{}\nwant {theirs}\ngot {mine}\n{script}", ran.err);
    let repairs: Vec<&str> =
        ran.err.lines().filter_map(|line| line.split_once("outside: ").map(|(_, after)| after)).collect();
    let is_hidden = ran.err.contains("git update-index --skip-worktree -- ");
    let has_stopped = ran.err.contains("not committed: git restore . && git clean -i");
    assert!(is_hidden || has_stopped || !repairs.is_empty(), "{about}\n{}", ran.err);
    if !is_hidden && ran.code == 0 {
        at(place, &inner, &repairs.join("\n")).ok();
        assert_eq!(at(place, &inner, SNAPSHOT).out, theirs, "{about}: {repairs:?} does not repair it\n{}", ran.err);
        counts[2] += 1;
    }
}

fn holds_in(mode: &str) {
    let Some(place) = Place::with(&["git"]) else { return };
    place.write(
        "home:.gitconfig",
        "[user]\nname = T\nemail = t@example.org\n[init]\ndefaultBranch = main\n[gc]\nauto = 0\n",
    );
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (started, time) = (Instant::now(), Duration::from_secs(number("COFFERDAM_PROPERTY_SECONDS").unwrap_or(25)));
    let only = number("COFFERDAM_PROPERTY_SEED");
    let mut counts = [0; 3];
    for seed in only.map_or(1..u64::MAX, |seed| seed..seed + 1) {
        for (index, operation) in OPERATIONS.iter().enumerate() {
            // Two repositories with every operation, then one operation each.
            let is_due = only.is_some() || seed <= 2 || seed % 6 == index as u64;
            if is_due {
                try_one(&place, mode, seed, operation, &mut counts);
            }
        }
        if seed >= 2 && started.elapsed() > time {
            break;
        }
    }
    println!(
        "{mode}: {} the same as outside, {} with a covered name that differs, {} repaired",
        counts[0], counts[1], counts[2]
    );
    assert!(only.is_some() || counts[0] + counts[1] >= 12, "{counts:?}");
}

#[test]
fn git_does_the_same_inside_or_says_what_it_could_not_do_in_static_mode() {
    holds_in("static");
}

#[test]
fn git_does_the_same_inside_or_says_what_it_could_not_do_in_dynamic_mode() {
    holds_in("dynamic");
}

#[test]
fn a_name_that_a_branch_has_and_no_session_makes_is_told_where_git_stops() {
    let Some(place) = Place::with(&["git"]) else { return };
    place.write("home:.gitconfig", "[user]\nname = T\nemail = t@example.org\n[init]\ndefaultBranch = main\n");
    let line = ".mcp.json is protected and a branch has it";
    for packed in ["true", "git gc -q"] {
        let fresh = "chmod -R u+rwX . && find . -mindepth 1 -delete && git init -q && echo a > a && git add a && git commit -qm a";
        at(&place, &place.project, fresh).ok();
        let failing = place.run(&[], &["git", "checkout", "-q", "no-such-branch"]).code(1);
        assert!(!failing.err.contains("a branch has it"), "{}", failing.err);
        let branch = "git checkout -q -b some/branch && echo {} > .mcp.json && git add -A && git commit -qm b && git checkout -q main";
        at(&place, &place.project, &format!("{branch} && {packed}")).ok();
        place
            .run(&[], &["git", "checkout", "-q", "some/branch"])
            .code(128)
            .says(&[line, "git restore . && git clean -i"]);
    }
}
