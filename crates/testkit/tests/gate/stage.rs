//! A scene with something unknown in it, and sessions there whose questions are answered by a list or by the test itself.
//! Owns starting, ending and the look for what is left; every module here uses it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use cofferdam_testkit::{Helper, Person, Scene, leaks, program, start_helper};

/// Nothing here takes that long, but where it hangs; also where the processor is software.
const PATIENCE: Duration = Duration::from_secs(50);

pub(crate) struct Stage {
    pub(crate) scene: Scene,
    trigger: &'static str,
}

/// How a session ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
    pub(crate) took: Duration,
}

/// A session that runs, and the test at its socket.
pub(crate) struct Live {
    pub(crate) helper: Helper,
    pub(crate) person: Person,
    since: Instant,
}

/// Runs a promise against one trigger, and looks at what it left.
pub(crate) fn play(trigger: &'static str, promise: fn(&Stage)) {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    if let (Err(error), "fuse") = (device, trigger) {
        println!("skipped: /dev/fuse cannot be opened: {error}");
        return;
    }
    let stage = Stage::new(trigger);
    promise(&stage);
    stage.end();
}

impl Stage {
    fn new(trigger: &'static str) -> Self {
        Stage { scene: Scene::new().expect("the home directory is writable"), trigger }
    }

    /// Another one, for the same trigger.
    pub(crate) fn beside(&self) -> Self {
        Stage::new(self.trigger)
    }

    pub(crate) fn end(self) {
        assert_eq!(leaks::find(&self.scene), Vec::<String>::new());
        self.scene.remove().expect("nothing of it is in use");
    }

    /// A file that no rule knows.
    pub(crate) fn unknown(&self, name: &str, text: &str) -> PathBuf {
        self.scene.write(Path::new("outside").join(name), text)
    }

    /// A copy of an installed file where no rule knows it.
    pub(crate) fn copy(&self, of: &Path, name: &str) -> PathBuf {
        let to = self.unknown(name, "");
        fs::copy(of, &to).expect("it can be read");
        to
    }

    /// Runs a shell script whose questions are answered by `answers`, lines of `gated-launch`.
    pub(crate) fn run(&self, answers: &str, script: &str) -> Done {
        self.run_with("", answers, &self.scene.project(), script)
    }

    pub(crate) fn run_with(&self, settings: &str, answers: &str, directory: &Path, script: &str) -> Done {
        let answers = self.scene.write("answers", answers);
        let since = Instant::now();
        let helper = self.launch(settings, &answers.to_string_lossy(), directory, script);
        finish(helper, since)
    }

    /// Starts a shell script whose questions the test answers.
    pub(crate) fn start(&self, settings: &str, script: &str) -> Live {
        let since = Instant::now();
        let helper = self.launch(settings, "-", &self.scene.project(), script);
        let person = Person::of(&self.scene).expect("the session has a socket");
        Live { helper, person, since }
    }

    fn launch(&self, settings: &str, answers: &str, directory: &Path, script: &str) -> Helper {
        let launcher = program("gated-launch").expect("it was built with the tests");
        let settings = format!("{}{settings}", self.trigger);
        let arguments = [&settings, answers, "/bin/sh", "-c", script];
        start_helper(&launcher, &arguments, &self.scene, directory, &[], Stdio::null()).expect("it starts")
    }

    /// Waits until a script has made a file of the project.
    pub(crate) fn await_mark(&self, name: &str) {
        let mark = self.scene.project().join(name);
        let there = cofferdam_testkit::person::until(PATIENCE, || mark.exists().then_some(()));
        assert!(there.is_ok(), "{name} was never made");
    }

    pub(crate) fn mark(&self, name: &str) {
        self.scene.write(self.scene.project().join(name), "");
    }
}

impl Live {
    pub(crate) fn finish(self) -> Done {
        finish(self.helper, self.since)
    }
}

fn finish(mut helper: Helper, since: Instant) -> Done {
    let status = helper.wait(PATIENCE).expect("it can be waited for");
    let took = since.elapsed();
    if status.is_none() {
        helper.child.kill().and_then(|()| helper.child.wait()).expect("it is ours");
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    helper.child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut out));
    helper.child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut err));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let done = Done { out: text(&out), err: text(&err), code: status.and_then(|status| status.code()), took };
    assert!(status.is_some(), "it hangs: {done:?}");
    done
}

impl Done {
    /// What was asked, as `OP PATH`, in order.
    pub(crate) fn asked(&self) -> Vec<&str> {
        self.err.lines().filter_map(|line| line.strip_prefix("asked ")).collect()
    }

    #[track_caller]
    pub(crate) fn says(&self, out: &str) -> &Self {
        assert_eq!(self.out.trim_end(), out, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn complains(&self, word: &str) -> &Self {
        assert!(self.err.contains(word), "`{word}` is not in {self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn was_asked(&self, expected: &[String]) -> &Self {
        assert_eq!(self.asked(), expected, "{self:?}");
        self
    }
}
