//! Against git itself: repositories with files that it chose to store in every way it has.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::reading::{LEAST_WORK, LONGEST_WAIT};
use super::*;

struct Scene(PathBuf);

impl Drop for Scene {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("it is ours");
    }
}

impl Scene {
    /// `None` where git is not installed, or does not know an option.
    fn new(name: &str, init: &[&str]) -> Option<Scene> {
        let path = std::env::temp_dir().join(format!("cofferdam-tracked-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        let scene = Scene(path.canonicalize().expect("it is there"));
        if scene.git(&[&["init", "-q"], init].concat()).is_none() {
            println!("skipped: git is not installed, or knows no {init:?}");
            return None;
        }
        Some(scene)
    }

    fn git(&self, arguments: &[&str]) -> Option<String> {
        let settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false"];
        let mut git = Command::new("git");
        git.args(settings).args(arguments).current_dir(&self.0).stdin(Stdio::null());
        git.env_remove("GIT_DIR").env("HOME", &self.0).env("GIT_CONFIG_NOSYSTEM", "1");
        let output = git.output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("writable");
        std::fs::write(&path, content).expect("writable");
        path
    }

    fn repository(&self) -> Repository {
        let git = [GitDir { path: self.0.join(".git"), role: GitRole::Main, reads: Vec::new() }];
        Repository::open(&self.0, &git).expect("it is a repository")
    }

    fn holds(&self, path: &Path) -> bool {
        let found = self.repository().tracked(&[path]);
        assert!(found.len() <= 1 && found.iter().all(|file| file.path == path), "{found:?}");
        found.iter().any(|file| file.object.as_ref().is_some_and(|object| object.exists()))
    }
}

/// A generator of numbers that a failure can be repeated with.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn text(&mut self, lines: u64) -> Vec<u8> {
        (0..lines).flat_map(|line| format!("KEY_{line}={}\n", self.below(4)).into_bytes()).collect()
    }
}

/// Random trees, committed several times over so that git has differences to store, in every version of the index.
fn agrees_with_git(name: &str, init: &[&str]) {
    for seed in 1..=4u64 {
        let Some(scene) = Scene::new(&format!("{name}-{seed}"), init) else { return };
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let names =
            [".env", ".env.a", ".envrc", ".a/.env", "a/b/.env", ".env.local.long-name", "a/c", "z/.env", "\u{e9}/.env"];
        for round in 0..6 {
            for name in names {
                let lines = numbers.below(120);
                let text = numbers.text(lines);
                scene.write(name, &text);
            }
            scene.git(&["add", "-A"]).expect("it can be added");
            scene.git(&["commit", "-q", "--allow-empty", "-m", "x"]).expect("it can be committed");
            let version = ["2", "3", "4"][usize::try_from(numbers.below(3)).expect("small")];
            scene.git(&["update-index", "--index-version", version]).expect("it knows these");
            match round {
                2 => scene.git(&["gc", "-q", "--aggressive", "--prune=now"]).map(drop).expect("it can be packed"),
                4 => scene.git(&["repack", "-q", "-a", "-d"]).map(drop).expect("it can be packed"),
                _ => {}
            }
            for name in names {
                let path = scene.0.join(name);
                assert!(scene.holds(&path), "seed {seed}, round {round}, {name}, version {version}");
                let content = std::fs::read(&path).expect("readable");
                std::fs::write(&path, [&content[..], b"x"].concat()).expect("writable");
                assert!(!scene.holds(&path), "seed {seed}, round {round}, {name}: another content");
                std::fs::write(&path, content).expect("writable");
            }
            let all =
                scene.repository().entries(&names.map(|name| scene.0.join(name)).each_ref().map(PathBuf::as_path));
            assert_eq!(all.len(), names.len(), "seed {seed}, round {round}");
        }
    }
}

#[test]
fn what_git_has_is_found_however_it_is_stored() {
    agrees_with_git("sha1", &[]);
}

#[test]
fn what_git_has_is_found_in_a_repository_of_longer_names() {
    agrees_with_git("sha256", &["--object-format=sha256"]);
}

#[test]
fn an_entry_without_its_object_or_with_a_forged_one_shows_nothing() {
    let Some(scene) = Scene::new("forged", &[]) else { return };
    let path = scene.write(".env", b"KEY=hunter2\n");
    assert!(!scene.holds(&path), "it is not tracked");
    // The right name in the index, and no object.
    let name = scene.git(&["hash-object", ".env"]).expect("it can be named");
    let name = name.trim().to_owned();
    let entry = format!("100644,{name},.env");
    scene.git(&["update-index", "--add", "--cacheinfo", &entry]).expect("it can be entered");
    assert!(!scene.holds(&path), "the object is not there");
    // An object of that name with other bytes: a pack or a file that a session made without knowing the content.
    let other = scene.write("other", b"KEY=guessed\n");
    let forged = scene.git(&["hash-object", "-w", "other"]).expect("it can be stored");
    let at = |name: &str| scene.0.join(".git/objects").join(&name[..2]).join(&name[2..]);
    std::fs::create_dir_all(at(&name).parent().expect("it has one")).expect("writable");
    std::fs::copy(at(forged.trim()), at(&name)).expect("writable");
    assert!(!scene.holds(&path), "the object has other bytes");
    std::fs::remove_file(at(&name)).expect("ours");
    // Through a link to a store elsewhere, which does have it: a session may not be able to read that one.
    let store = scene.write("elsewhere/x", b"").with_file_name("store");
    scene.git(&["hash-object", "-w", ".env"]).expect("it can be stored");
    assert!(scene.holds(&path), "the control: the store has it");
    std::fs::rename(scene.0.join(".git/objects").join(&name[..2]), &store).expect("ours");
    std::os::unix::fs::symlink(&store, scene.0.join(".git/objects").join(&name[..2])).expect("writable");
    assert!(!scene.holds(&path), "a link is not followed");
    drop(other);
}

#[test]
fn a_damaged_index_or_pack_shows_nothing_and_ends_nothing() {
    let Some(scene) = Scene::new("damaged", &[]) else { return };
    let path = scene.write(".env", b"KEY=1\n");
    scene.write("b", &[b'x'; 4096]);
    scene.git(&["add", "-A"]).expect("it can be added");
    scene.git(&["commit", "-q", "-m", "x"]).expect("it can be committed");
    scene.git(&["gc", "-q", "--prune=now"]).expect("it can be packed");
    assert!(scene.holds(&path));
    let packs = std::fs::read_dir(scene.0.join(".git/objects/pack")).expect("there is one");
    let packs = packs.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e != "rev"));
    let files: Vec<PathBuf> = packs.chain([scene.0.join(".git/index")]).collect();
    assert!(files.len() >= 3, "{files:?}");
    let mut numbers = Numbers(7);
    for file in files {
        let whole = std::fs::read(&file).expect("readable");
        let replace = |bytes: &[u8]| {
            std::fs::remove_file(&file).expect("ours");
            std::fs::write(&file, bytes).expect("writable");
        };
        for _ in 0..300 {
            let mut bytes = whole.clone();
            let at = usize::try_from(numbers.below(bytes.len() as u64)).expect("small");
            bytes[at] ^= u8::try_from(1 + numbers.below(255)).expect("a byte");
            if numbers.below(3) == 0 {
                bytes.truncate(at);
            }
            replace(&bytes);
            // Whatever it finds, it found these bytes.
            scene.holds(&path);
        }
        replace(&whole);
        assert!(scene.holds(&path));
    }
    std::fs::write(scene.0.join(".git/index"), b"").expect("writable");
    assert!(!scene.holds(&path));
}

/// The length of an object or of a text in seven bits at a time.
fn length(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).expect("seven bits"));
    bytes
}

/// A pack of one tree of a mebibyte and differences to it, each to the one before, of which the last has the name.
fn pack_of_differences(name: &[u8; 20], differences: usize) -> (Vec<u8>, Vec<u8>) {
    let deflate = |bytes: &[u8]| miniz_oxide::deflate::compress_to_vec_zlib(bytes, 1);
    let header = |kind: u8, size: usize| {
        let rest = if size > 15 { length(size >> 4) } else { Vec::new() };
        let first = kind << 4 | u8::try_from(size & 15).expect("four bits") | if rest.is_empty() { 0 } else { 0x80 };
        [vec![first], rest].concat()
    };
    let size = 1 << 20;
    // Sixteen copies of 64 KiB each: from 0, 0x10000, 0x20000 and so on.
    let copies = (0..16u8).flat_map(|block| [0x80 | 0x04, block]);
    let difference: Vec<u8> = [length(size), length(size)].concat().into_iter().chain(copies).collect();
    let mut data = b"PACK\0\0\0\x02\0\0\0\x01".to_vec();
    let mut last = data.len();
    data.extend([header(2, size), deflate(&vec![7; size])].concat());
    for _ in 0..differences {
        let here = data.len();
        let mut distance = here - last;
        let mut back = vec![u8::try_from(distance & 0x7f).expect("seven bits")];
        while distance >= 0x80 {
            distance = (distance >> 7) - 1;
            back.insert(0, u8::try_from(distance & 0x7f).expect("seven bits") | 0x80);
        }
        data.extend([header(6, difference.len()), back, deflate(&difference)].concat());
        last = here;
    }
    let mut index = b"\xfftOc\0\0\0\x02".to_vec();
    for first in 0..=255u8 {
        index.extend(u32::from(first >= name[0]).to_be_bytes());
    }
    index.extend(name);
    index.extend([0; 4]);
    index.extend(u32::try_from(last).expect("a small pack").to_be_bytes());
    (index, data)
}

#[test]
fn a_repository_that_would_take_minutes_shows_nothing_and_ends_in_time() {
    let Some(scene) = Scene::new("slow", &[]) else { return };
    let paths: Vec<PathBuf> = (0..200).map(|number| scene.write(&format!("{number}/.env"), b"KEY=1\n")).collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    scene.git(&["add", "-A"]).expect("it can be added");
    let name = scene.git(&["hash-object", "0/.env"]).expect("it can be named").trim().to_owned();
    let found = |scene: &Scene| scene.repository().tracked(&paths).iter().filter(|file| file.object.is_some()).count();
    assert_eq!(found(&scene), paths.len(), "the control: each is what git has");
    std::fs::remove_file(scene.0.join(".git/objects").join(&name[..2]).join(&name[2..])).expect("it is loose");
    let object = data_encoding::HEXLOWER.decode(name.as_bytes()).expect("a name").try_into().expect("20 bytes");
    let (index, data) = pack_of_differences(&object, 60);
    let packs = scene.0.join(".git/objects/pack");
    std::fs::create_dir_all(&packs).expect("writable");
    for number in 0..60 {
        std::fs::write(packs.join(format!("pack-{number}.idx")), &index).expect("writable");
        std::fs::write(packs.join(format!("pack-{number}.pack")), &data).expect("writable");
    }
    let begin = Instant::now();
    assert_eq!(found(&scene), 0);
    let took = begin.elapsed();
    assert!(took < LONGEST_WAIT * 100, "it took {took:?}, where all of it takes many minutes");
    // The control: a pack of them can be read.
    let repository = scene.repository();
    assert_eq!(
        objects::find(&repository.objects, objects::Kind::Blob, &object, &repository.budget),
        None,
        "a tree is no file"
    );
    assert!(repository.budget.spent.get() > LEAST_WORK, "it was put together");
}

/// A repository of many packages, each with a tracked `.npmrc`.
#[test]
fn many_files_that_git_has_are_found() {
    let Some(scene) = Scene::new("many", &[]) else { return };
    let paths: Vec<PathBuf> =
        (0..1000).map(|number| scene.write(&format!("packages/{number}/.npmrc"), b"registry=x\n")).collect();
    scene.git(&["add", "-A"]).expect("git adds");
    let begin = Instant::now();
    let found = scene.repository().tracked(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    println!("{:?}", begin.elapsed());
    assert_eq!(found.iter().filter(|file| file.object.is_some()).count(), paths.len());
    // Past the bound the first ones count.
    let more: Vec<PathBuf> = (0..4200).map(|number| scene.write(&format!("m/{number:04}"), b"x\n")).collect();
    scene.git(&["add", "-A"]).expect("git adds");
    let found = scene.repository().entries(&more.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    assert_eq!(found.first().map(|entry| entry.name.as_slice()), Some(b"m/0000".as_slice()));
    assert_eq!(found.len(), 4096);
}

#[test]
fn only_a_command_that_changes_files_can_have_stopped_half_way() {
    let words = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
    for line in ["git|merge|x", "bash|-c|cd sub && git stash -u; true", "/usr/bin/git|-C|x|cherry-pick|y"] {
        assert!(changes_by_git(&words(line)), "{line}");
    }
    for line in ["git|grep|nothing", "git|diff|--quiet", "git|commit|-m|x", "npm|run|rebase", "bash|-c|git log nosuch"]
    {
        assert!(!changes_by_git(&words(line)), "{line}");
    }
}
