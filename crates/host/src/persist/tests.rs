//! Answers that are kept: what the file looks like afterwards, and that it decides.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use cofferdam_policy::Layer;

use super::*;

/// A home with a project, removed at the end.
struct Home {
    around: Surroundings,
}

impl Home {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = std::env::temp_dir().canonicalize().expect("there is a temporary directory");
        let home = base.join(format!("cofferdam-persist-{}-{count}", std::process::id()));
        let project = home.join("project");
        std::fs::create_dir_all(&project).expect("it is writable");
        let state = home.join(".local/state/cofferdam");
        Home {
            around: Surroundings {
                cwd: project.clone(),
                start_in: project.clone(),
                project: Some(project),
                state,
                home,
                other_home: None,
            },
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.around.home.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.path(name).parent().expect("it has one")).expect("writable");
        std::fs::write(self.path(name), text).expect("writable");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("it is there")
    }

    fn save(&self, keep: Keep, changes: &[Change]) -> Result<Saved, PersistError> {
        save(&self.around, &[], keep, changes)
    }

    /// What the next run would find.
    fn access(&self, path: &Path) -> Option<(Access, Layer)> {
        let places = self.around.places();
        let policy =
            Sources::read(&self.around, &[]).and_then(|sources| sources.resolve(&places)).expect("it resolves");
        real_rules(&policy, &places).deciding(path).map(|rule| (rule.rule.access, rule.rule.origin.layer))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.around.home).expect("it is ours");
    }
}

const LOCAL: &str = "project/.cofferdam/policy.local.toml";
const USER: &str = ".config/cofferdam/config.toml";

fn change(allow: bool, op: Op, path: impl Into<PathBuf>) -> Change {
    Change { allow, op, path: path.into(), program: "/usr/bin/make".to_owned() }
}

#[test]
fn a_kept_answer_decides_at_the_next_run() {
    for (keep, layer) in [(Keep::Project, Layer::ProjectLocal), (Keep::User, Layer::User)] {
        for (allow, op, access) in [
            (true, Op::Read, Access::Read),
            (true, Op::List, Access::Read),
            (true, Op::Exec, Access::Read),
            (true, Op::Write, Access::Write),
            (true, Op::Create, Access::Write),
            (false, Op::Read, Access::Deny),
            (false, Op::Write, Access::Deny),
        ] {
            let home = Home::new();
            let path = home.path("data/set");
            let saved = home.save(keep, &[change(allow, op, &path)]).expect("it can be kept");
            assert_eq!(home.access(&path), Some((access, layer)), "{keep:?} {allow} {op:?}\n{}", saved.diff);
            assert!(saved.diff.contains("+  { path = \"~/data/set\", optional = true, reason = \""), "{}", saved.diff);
            assert!(saved.diff.contains(": /usr/bin/make\" },"), "{}", saved.diff);
            let again = home.save(keep, &[change(allow, op, &path)]).expect("it can be kept");
            assert_eq!(again.diff, "", "a rule that covers it adds nothing");
        }
    }
}

#[test]
fn a_protected_file_that_was_asked_about_is_kept_as_readable() {
    let home = Home::new();
    let path = home.path(".inputrc");
    assert_eq!(home.access(&path).map(|(access, _)| access), Some(Access::Protect));
    let saved = home.save(Keep::User, &[change(true, Op::Read, &path)]).expect("it can be kept");
    assert!(saved.diff.contains("~/.inputrc"), "{}", saved.diff);
    assert_eq!(home.access(&path), Some((Access::Read, Layer::User)));
    // What a directory above gives already is not written again, and protected all the same.
    home.write(USER, "[files]\nread = [\"~/.config\"]\n");
    let below = home.path(".config/fish/config.fish.d");
    assert_eq!(home.save(Keep::User, &[change(true, Op::Read, &below)]).expect("it can be kept").diff, "");
    assert_eq!(home.access(&below).map(|(access, _)| access), Some(Access::Protect));
}

#[test]
fn comments_order_and_formatting_stay() {
    let home = Home::new();
    let text = "# mine\nmode = \"dynamic\" # asks\n\n[files]\n# what I read\nread = [\n  \"~/a\", # about a\n  # about nothing\n]\nwrite = [\"~/w\"]\n\n[limits]\ntimeout = \"5m\"\n";
    home.write(USER, text);
    let (read, write) = (home.path("b"), home.path("v"));
    home.save(Keep::User, &[change(true, Op::Read, read), change(true, Op::Write, write)]).expect("it can be kept");
    let today = cofferdam_audit::Stamp::now().day();
    let entry =
        |path: &str| format!("{{ path = \"{path}\", optional = true, reason = \"approved {today}: /usr/bin/make\" }}");
    let expected = text
        .replace("  # about nothing\n", &format!("  # about nothing\n  {},\n", entry("~/b")))
        .replace("[\"~/w\"]", &format!("[\"~/w\", {}]", entry("~/v")));
    assert_eq!(home.read(USER), expected);
}

#[test]
fn every_way_to_write_a_list_can_be_added_to() {
    for text in [
        "",
        "files.read = []\n",
        "files = { read = [\"~/x\"] }\n",
        "[files]\nread = [\"~/x\" # why\n]\n",
        "[[files.read]]\npath = \"~/x\"\n",
        "[files]\nread = [\"~/x\",\n\"~/y\"]\n",
        "version = 1\n[env]\npass = [\"A\"]\n",
    ] {
        let home = Home::new();
        home.write(USER, text);
        let path = home.path("data");
        home.save(Keep::User, &[change(true, Op::Read, &path)]).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(home.access(&path), Some((Access::Read, Layer::User)), "{text} became\n{}", home.read(USER));
        assert!(home.read(USER).contains("# why") == text.contains("# why"));
    }
}

#[test]
fn what_the_file_said_before_about_the_same_place_gives_way() {
    let home = Home::new();
    home.write(USER, "[files]\nread = [\n  \"~/a\", # first\n  \"~/data\", # second\n]\ndeny = [\"~/hidden\"]\n");
    let (data, hidden) = (home.path("data"), home.path("hidden"));
    home.save(Keep::User, &[change(true, Op::Write, &data), change(true, Op::Read, &hidden)]).expect("kept");
    assert_eq!(home.access(&data), Some((Access::Write, Layer::User)));
    assert_eq!(home.access(&hidden), Some((Access::Read, Layer::User)));
    let text = home.read(USER);
    assert!(text.contains("# first") && text.contains("# second") && text.contains("deny = []"), "{text}");
}

#[test]
fn denying_a_write_keeps_what_may_be_read_readable() {
    let home = Home::new();
    home.write(USER, "[files]\nwrite = [\"~/data\"]\n");
    let path = home.path("data/sub");
    home.save(Keep::User, &[change(false, Op::Write, &path)]).expect("kept");
    assert_eq!(home.access(&path), Some((Access::Read, Layer::User)));
}

#[test]
fn paths_are_written_for_the_scope_they_are_kept_in() {
    let home = Home::new();
    home.write("project/.cofferdam/policy.toml", "[files]\ndeny = [\"./sub\"]\n");
    let path = home.path("project/sub/file");
    home.save(Keep::Project, &[change(true, Op::Read, &path)]).expect("kept");
    assert!(home.read(LOCAL).contains("\"./sub/file\""), "{}", home.read(LOCAL));
    assert_eq!(home.read("project/.cofferdam/.gitignore"), "/.gitignore\n/policy.local.toml\n");
    let error = home.save(Keep::User, &[change(false, Op::Read, home.path("project/other"))]).map(|saved| saved.diff);
    assert!(error.expect("kept").contains("\"~/project/other\""), "`./` would be every project");
}

#[test]
fn a_denial_is_kept_although_an_unapproved_file_says_the_same() {
    let home = Home::new();
    home.write("project/.cofferdam/policy.toml", "[files]\ndeny = [\"./sub\"]\n");
    home.save(Keep::Project, &[change(false, Op::Read, home.path("project/sub"))]).expect("kept");
    assert!(home.read(LOCAL).contains("\"./sub\""), "{}", home.read(LOCAL));
}

#[test]
fn a_file_that_was_not_approved_is_not_added_to() {
    let home = Home::new();
    home.write(LOCAL, "[files]\nwrite = [\"~/everything\"]\n");
    let path = home.path("data");
    let error = home.save(Keep::Project, &[change(true, Op::Read, &path)]).expect_err("it is a stranger's");
    assert!(matches!(error, PersistError::NotTrusted { .. }), "{error}");
    assert_eq!(home.read(LOCAL), "[files]\nwrite = [\"~/everything\"]\n");
}

#[test]
fn what_was_approved_stays_approved_after_an_answer() {
    let home = Home::new();
    for name in ["one", "two"] {
        home.save(Keep::Project, &[change(true, Op::Read, home.path(name))]).expect("kept");
        assert_eq!(home.access(&home.path(name)), Some((Access::Read, Layer::ProjectLocal)));
    }
    home.write(LOCAL, &format!("{}# changed by somebody\n", home.read(LOCAL)));
    let error = home.save(Keep::Project, &[change(true, Op::Read, home.path("three"))]).expect_err("changed");
    assert!(matches!(error, PersistError::NotTrusted { .. }), "{error}");
}

#[test]
fn no_link_is_followed_and_modes_are_kept() {
    let home = Home::new();
    home.write("elsewhere/policy.local.toml", "");
    std::os::unix::fs::symlink(home.path("elsewhere"), home.path("project/.cofferdam")).expect("writable");
    let path = home.path("data");
    let error = home.save(Keep::Project, &[change(true, Op::Read, &path)]).expect_err("a link");
    assert!(matches!(error, PersistError::Store(StoreError::Link { .. })), "{error}");
    assert_eq!(home.read("elsewhere/policy.local.toml"), "");

    home.write("elsewhere/config.toml", "");
    home.write(".config/cofferdam/x", "");
    std::os::unix::fs::symlink(home.path("elsewhere/config.toml"), home.path(USER)).expect("writable");
    assert!(home.save(Keep::User, &[change(true, Op::Read, &path)]).is_err());
    std::fs::remove_file(home.path(USER)).expect("ours");

    home.write(USER, "");
    std::fs::set_permissions(home.path(USER), std::fs::Permissions::from_mode(0o600)).expect("ours");
    home.save(Keep::User, &[change(true, Op::Read, &path)]).expect("kept");
    let mode = std::fs::metadata(home.path(USER)).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let left: Vec<_> = std::fs::read_dir(home.path(".config/cofferdam")).expect("there").collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn answers_at_the_same_time_are_all_kept() {
    let home = Home::new();
    let paths: Vec<PathBuf> = (0..12).map(|number| home.path(&format!("data/{number}"))).collect();
    std::thread::scope(|scope| {
        for path in &paths {
            let home = &home;
            scope.spawn(move || home.save(Keep::Project, &[change(true, Op::Read, path)]).expect("kept"));
        }
    });
    for path in &paths {
        assert_eq!(home.access(path), Some((Access::Read, Layer::ProjectLocal)), "{}", path.display());
    }
}

#[test]
fn a_proposal_is_written_as_it_was_shown_or_not_at_all() {
    let home = Home::new();
    home.write(USER, "# mine\npreset = \"node\"\n[network]\nallow = [\n  \"a.test\", # one\n]\n");
    let rule = HostRule::whole(Endpoint::parse_allow("b.test:443@10.0.0.5").expect("a pair"));
    let settings = vec![Setting::Preset("cargo".to_owned()), Setting::NetworkPart(NetworkPart::Allow(rule))];
    let draft = Draft { settings, ..Draft::default() };
    let propose = || propose_draft(&home.around, &[], Keep::User, &draft).expect("it can be proposed");
    let proposal = propose();
    assert!(proposal.diff.contains("+preset = [\"node\", \"cargo\"]"), "{}", proposal.diff);
    assert!(
        !home.around.state.join("policy.lock").exists() && home.read(USER).contains("preset = \"node\""),
        "it was only shown"
    );
    home.write(USER, "# mine, changed meanwhile\n");
    let refused = save_proposal(&home.around, &[], Keep::User, &proposal).expect_err("it was changed");
    assert!(matches!(refused, PersistError::Changed { .. }), "{refused}");
    assert_eq!(home.read(USER), "# mine, changed meanwhile\n");
    home.write(USER, "# mine\npreset = \"node\"\n[network]\nallow = [\n  \"a.test\", # one\n]\n");
    save_proposal(&home.around, &[], Keep::User, &propose()).expect("it is written");
    let text = "# mine\npreset = [\"node\", \"cargo\"]\n[network]\nallow = [\n  \"a.test\", # one\n  \"b.test:443@10.0.0.5\",\n]\n";
    assert_eq!(home.read(USER), text);
    assert_eq!(propose().diff, "");
}

#[test]
fn what_would_not_count_is_refused() {
    let home = Home::new();
    home.write("project/.cofferdam/policy.toml", "[files]\ndeny = [\"~/data\"]\n");
    let path = home.path("data");
    let error = home.save(Keep::User, &[change(true, Op::Read, &path)]).expect_err("the project denies it");
    assert!(matches!(error, PersistError::Overruled { .. }), "{error}");
    let error = home.save(Keep::User, &[change(true, Op::Read, home.path("a*"))]).expect_err("a star");
    assert!(matches!(error, PersistError::Unwritable { .. }), "{error}");
    for keep in [Keep::Once, Keep::Session] {
        assert!(home.save(keep, &[]).is_err());
    }
    assert!(!home.path(USER).exists());
}

#[test]
fn the_home_directory_is_never_opened_by_an_answer() {
    let home = Home::new();
    for path in [home.around.home.as_path(), home.around.home.parent().expect("it has one"), Path::new("/")] {
        for op in [Op::List, Op::Read, Op::Write] {
            let error = home.save(Keep::User, &[change(true, op, path)]).expect_err("too wide");
            assert!(matches!(error, PersistError::TooWide { .. }), "{error}");
        }
    }
    assert!(!home.path(USER).exists());
}

fn settled(verdict: Verdict, path: PathBuf, is_dir: bool, granted: Vec<PathBuf>) -> Settled {
    let question = cofferdam_wire::Question {
        id: 1,
        op: if is_dir { Op::List } else { Op::Read },
        subject: cofferdam_wire::Subject::Path(path),
        is_dir,
        size: 0,
        flags: 0,
        asker: cofferdam_wire::Asker::default(),
        toolchain: None,
        group: None,
        by: None,
        also: Vec::new(),
        is_alone: false,
        hint: None,
        waiting: 1,
        asked: 0.0,
        until: None,
    };
    Settled { question, verdict, cause: cofferdam_wire::Cause::Person, granted, waited: std::time::Duration::ZERO }
}

#[test]
fn an_answer_is_kept_with_the_reach_it_was_given() {
    let home = Home::new();
    let keep = Keep::Project;
    let file = home.path("data/a");
    let allow = |reach| Verdict::Allow { reach, keep };
    let save = |settled: &Settled| save_answer(&home.around, &[], settled);
    save(&settled(allow(Reach::File), file.clone(), false, vec![file.clone()])).expect("kept");
    assert_eq!(home.access(&file), Some((Access::Read, Layer::ProjectLocal)));
    assert_eq!(home.access(&home.path("data/b")), None);
    let deny = Verdict::Deny { reach: Reach::Dir, keep };
    save(&settled(deny, home.path("clients/x"), false, Vec::new())).expect("kept");
    assert_eq!(home.access(&home.path("clients/y")), Some((Access::Deny, Layer::ProjectLocal)));
    save(&settled(allow(Reach::Dir), home.path("set"), true, vec![home.path("set")])).expect("kept");
    assert_eq!(home.access(&home.path("set/x")), Some((Access::Read, Layer::ProjectLocal)));
    // The names of a directory are less than any rule gives.
    let error =
        save(&settled(allow(Reach::File), home.path("names"), true, vec![home.path("names")])).expect_err("more");
    assert!(matches!(error, PersistError::OnlyNames { .. }), "{error}");
    let session = Verdict::Allow { reach: Reach::File, keep: Keep::Session };
    assert!(save(&settled(session, file, false, Vec::new())).is_err());
}

#[test]
fn the_organisations_file_is_written_where_it_can_be() {
    let home = Home::new();
    let target = Target::org(&home.path("etc/policy.toml"));
    let editor = Editor::begin(target, &home.around, &[]).expect("it can be made");
    let changes = [change(false, Op::Read, "/srv/payroll")];
    let entries = editor.entries(&changes, "2026-01-01").expect("it can be written");
    let text = edit::edit(&editor.text, &entries, &editor.places).expect("it is a list");
    editor.finish(&text, &changes).expect("kept");
    assert!(home.read("etc/policy.toml").contains("\"/srv/payroll\""));
    let mode = std::fs::metadata(home.path("etc/.policy.lock")).expect("there").permissions().mode();
    assert_eq!(mode & 0o077, 0, "nobody else can hold it");
}

#[test]
fn a_reason_cannot_draw_on_the_screen_or_break_the_file() {
    let home = Home::new();
    let program = format!("/tmp/\u{1b}[2J\"]\n[files]\nwrite = [\"/\"]{}", "x".repeat(500));
    let path = home.path("data");
    let change = Change { program, ..change(true, Op::Read, &path) };
    let saved = home.save(Keep::User, &[change]).expect("kept");
    assert!(!saved.diff.contains('\u{1b}'));
    assert_eq!(home.access(&path), Some((Access::Read, Layer::User)));
    assert_eq!(home.access(Path::new("/srv")), None);
}

#[test]
fn a_kept_answer_is_listed_and_taken_out_again_and_nothing_else_is() {
    let home = Home::new();
    let config = "# mine\n[files]\nread = [\n  \"~/known\", # stays\n]\n[network]\nallow = [\"a.example:443\", { host = \"b.example:443\", methods = [\"GET\"] }]\n";
    home.write(".config/cofferdam/config.toml", config);
    home.write("notes/list", "x");
    let change = |allow, name: &str| Change { allow, op: Op::Read, path: home.path(name), program: "cat".to_owned() };
    home.save(Keep::User, &[change(true, "notes/list")]).expect("it is kept");
    home.save(Keep::Project, &[change(false, "notes/other")]).expect("it is kept");
    let listed = kept(&home.around, &[]).expect("they can be read");
    let rules: Vec<String> = listed.iter().map(KeptRule::rule).collect();
    let expected = [
        "files.read = \"~/known\"",
        "files.read = \"~/notes/list\"",
        "network.allow = \"a.example:443\"",
        "files.deny = \"~/notes/other\"",
    ];
    assert_eq!(rules, expected, "a rule with methods is no answer");
    assert!(listed[1].reason().starts_with("approved 20") && listed[1].keep == Keep::User, "{listed:?}");
    for (at, gone) in [(1, "notes/list"), (3, "notes/other"), (2, "a.example")] {
        let saved = revoke(&home.around, &[], &listed[at]).expect("it stands there");
        assert!(saved.diff.lines().any(|line| line.starts_with('-') && line.contains(gone)), "{}", saved.diff);
        assert!(matches!(revoke(&home.around, &[], &listed[at]), Err(PersistError::Changed { .. })), "it is gone");
    }
    let left = home.read(".config/cofferdam/config.toml");
    assert!(left.starts_with("# mine\n[files]\nread = [\n  \"~/known\",") && left.contains("# stays"), "{left}");
    assert!(left.contains("methods = [\"GET\"]") && !left.contains("a.example"), "{left}");
    assert_eq!(home.access(&home.path("notes/other")), None, "and the project's file is approved as it is now");
    // What the operator changed meanwhile is not written over.
    home.write("project/.cofferdam/policy.local.toml", "[files]\nread = [\"~/x\"]\n");
    let listed = kept(&home.around, &[]).expect("they can be read");
    let of_project = listed.iter().find(|rule| rule.keep == Keep::Project).expect("it is listed");
    assert!(matches!(revoke(&home.around, &[], of_project), Err(PersistError::NotTrusted { .. })));
}
