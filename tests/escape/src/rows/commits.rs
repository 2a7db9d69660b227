//! Rows about what a commit takes over: links, names, bits, attributes, sizes and kinds that the workload left in its layer. Each
//! meets `sandbox commit`, and a script that falls for it.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use super::transaction::{ATTACK, After, Attack, BY_PATH, COMMITTED, in_transaction, last, mark, marks};
use crate::row::{Finding, Off, Row, Trial, Walls};

pub(crate) static E01: Row = Row {
    what: "links out of the project in the place of directories, at a commit",
    control: "every name is opened beneath the project, and no link is followed",
    run: |trial| {
        let attack = Attack {
            host: "mkdir \"$OUT/d\" real; echo kept > \"$OUT/d/canary\"; echo r > real/r; ln -s ../../outside/d link; ln -s \"$OUT/d\" whole",
            inside: "rm link whole; mkdir link whole; echo evil > link/canary; echo evil > whole/canary; rm -r real; ln -s ../../outside/d real",
            instead: BY_PATH,
            look: "cat \"$OUT/d/canary\" | grep -qx kept && [ ! -L real ] && [ -f real/r ] && grep -qx evil link/canary && [ ! -L whole ]",
            ..ATTACK
        };
        attack.run(trial)
    },
    ..COMMITTED
};

pub(crate) static E02: Row = Row {
    what: "links to what does not exist, at a commit",
    control: "a name is exchanged, and what it led to is not made",
    run: |trial| {
        let attack = Attack {
            host: "ln -s \"$OUT/one\" one; ln -s ../../outside/two two",
            inside: "rm one two; echo x > one; echo x > two; ln -s ../../outside/three three",
            instead: BY_PATH,
            look: "[ -z \"$(ls -A \"$OUT\")\" ] && [ -f one ] && [ ! -L one ] && [ -L three ] || { ls \"$OUT\"; false; }",
            ..ATTACK
        };
        attack.run(trial)
    },
    ..COMMITTED
};

pub(crate) static E08: Row = Row {
    what: "names of one file with what lies outside or is protected",
    control: "a commit exchanges names and breaks links; what stays in the layer shares no file with the host",
    run: |trial| {
        let attack = Attack {
            host: "mkdir -p .git/objects .git/refs .git/hooks; echo 'ref: refs/heads/main' > .git/HEAD; echo kept > .git/hooks/x; \
                   echo kept > \"$OUT/canary\"; ln \"$OUT/canary\" shared",
            inside: "echo evil > shared; ln .git/hooks/x alias; echo evil >> alias",
            instead: BY_PATH,
            look: "grep -qx kept \"$OUT/canary\" && grep -qx evil shared && ! grep -q evil .git/hooks/x && \
                   [ \"$(stat -c %i alias)\" != \"$(stat -c %i \"$UPPER/.git/hooks/x\")\" ]",
            ..ATTACK
        };
        attack.run(trial)
    },
    ..COMMITTED
};

pub(crate) static E09: Row = Row {
    what: "bits that lend rights, file capabilities and attributes of the layer, at a commit",
    control: "taken off what is linked, not put on what is copied",
    run: lent_rights,
    ..COMMITTED
};

/// `cap_net_raw` in the form of the second version, effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn lent_rights(trial: &Trial) -> Finding {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let attack = Attack {
        host: "echo '#!/bin/sh' > tool; chmod 6755 tool",
        inside: "mv tool moved; echo x > made; mkdir shared; mkdir -m 1777 sticky; echo y > linked; ln linked second; chmod 755 made",
        planted: |upper| {
            let run = |words: &[&str]| {
                let ended = std::process::Command::new(words[0]).args(&words[1..]).current_dir(upper).status();
                ended
                    .map_err(|error| error.to_string())
                    .and_then(|status| status.success().then_some(()).ok_or(words.join(" ")))
            };
            run(&["chmod", "6755", "moved", "made", "linked"])?;
            run(&["chmod", "2775", "shared"])?;
            mark(&upper.join("made"), "user.overlay.origin", b"x")?;
            mark(&upper.join("made"), "user.kept", b"x")?;
            // Only root may set them outside.
            let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
            if is_root { mark(&upper.join("made"), "security.capability", &CAPABILITY) } else { Ok(()) }
        },
        look: "for f in moved made linked second; do [ \"$(stat -c %a $f)\" = 755 ] || { stat -c '%n %a' $f; exit 1; }; done; \
               for d in shared sticky; do case $(stat -c %a $d) in 775|777|755) ;; *) stat -c '%n %a' $d; exit 1;; esac; done",
        ..ATTACK
    };
    attack.run(trial).and_then(|| match marks(&trial.project().join("made")) {
        Ok(list) if list.contains("security.capability") || list.contains("user.overlay") => Finding::Open(list),
        Ok(list) if !list.contains("user.kept") => Finding::Broken(format!("what programs set is gone: {list}")),
        Ok(_) if is_root => Finding::Contained("without a capability".to_owned()),
        Ok(_) => Finding::Contained("capabilities cannot be set without root".to_owned()),
        Err(why) => Finding::Broken(why),
    })
}

pub(crate) static E10: Row = Row {
    what: "attributes of overlayfs that the workload forges",
    control: "the kernel keeps `user.overlay.opaque` to itself; the other attributes mean nothing to a commit",
    run: |trial| {
        let attack = Attack {
            host: "mkdir keep other; echo a > keep/a; echo b > other/b; echo secret > \"$OUT/secret\"",
            inside: "e10",
            planted: |upper| {
                std::fs::create_dir_all(upper.join("keep")).map_err(|error| error.to_string())?;
                mark(&upper.join("keep"), "user.overlay.redirect", b"/other")?;
                mark(&upper.join("zero"), "user.overlay.metacopy", b"")?;
                mark(&upper.join("zero"), "user.overlay.redirect", b"../../outside/secret")?;
                mark(&upper.join("zero"), "user.overlay.whiteout", b"y")
            },
            look: "grep -qx a keep/a && grep -qx b other/b && [ ! -e keep/b ] && [ -f zero ] && [ ! -s zero ]",
            // As if the kernel let the workload set it: the directory counts as emptied.
            instead: "false",
            ..ATTACK
        };
        match trial.walls {
            Walls::Standing => attack.run(trial),
            Walls::Open => forged(trial, &attack).unwrap_or_else(|finding| finding),
        }
    },
    ..COMMITTED
};

fn forged(trial: &Trial, attack: &Attack) -> Result<Finding, Finding> {
    let after = After::session(trial, attack.host, attack.inside)?;
    (attack.planted)(&after.upper).map_err(Finding::Broken)?;
    mark(&after.upper.join("keep"), "user.overlay.opaque", b"y").map_err(Finding::Broken)?;
    let said = after.sandbox(&["commit"])?;
    let is_gone = !trial.project().join("keep/a").exists();
    Ok(if is_gone { Finding::Open(last(&said)) } else { Finding::Contained("a forged mark means nothing".to_owned()) })
}

pub(crate) static E11: Row = Row {
    what: "an archive with `..`, absolute names and links out, unpacked inside and committed",
    control: "what is not in the project cannot be written; a link is committed as a link",
    run: |trial| {
        let host = "mkdir t; echo evil > t/e; ln -s ../../outside t/l; cd t; \
            tar -cPf ../evil.tar --transform 's,^e$,../../outside/up,' e; tar -rPf ../evil.tar --transform \"s,^e\\$,$OUT/whole,\" e; \
            tar -rPf ../evil.tar l; tar -rPf ../evil.tar --transform 's,^e$,l/through,' e; cd ..; rm -r t";
        let inside = "tar -xPf evil.tar 2>/dev/null || true; ln -sfn ../../outside l; echo x > plain";
        let attack = Attack {
            host,
            inside,
            look: "[ -z \"$(ls -A \"$OUT\")\" ] && [ -f plain ] && [ -L l ] || { ls \"$OUT\"; false; }",
            ..ATTACK
        };
        match trial.walls {
            Walls::Standing => attack.run(trial),
            Walls::Open => unpacked_bare(trial, &attack),
        }
    },
    off: Off::Bare,
    ..COMMITTED
};

fn unpacked_bare(trial: &Trial, attack: &Attack) -> Finding {
    match After::session(trial, attack.host, attack.inside) {
        // Without a sandbox there is nothing to keep.
        Err(Finding::Broken(why)) if why == "no changes were kept" => {}
        Err(other) => return other,
        Ok(_) => return Finding::Broken("a session without a sandbox kept changes".to_owned()),
    }
    let names = std::fs::read_dir(trial.scene.outside()).into_iter().flatten().flatten().count();
    if names > 0 {
        Finding::Open(format!("{names} files outside"))
    } else {
        Finding::Contained("nothing outside".to_owned())
    }
}

pub(crate) static D05: Row = Row {
    what: "the host's disk, filled by what is written in a transaction",
    control: "the supervisor watches free space where the layer lies and ends the session",
    policy: |policy, place| {
        in_transaction(policy);
        (super::resources::D05_STORAGE.policy)(policy, place);
    },
    run: |trial| super::resources::ended_by_storage(trial, "d05-plain"),
    off: super::resources::NO_LIMITS,
    ..COMMITTED
};

pub(crate) static D06: Row = Row {
    what: "a sparse file of a tebibyte, at a commit",
    control: "the apparent size is compared before anything is staged",
    policy: |policy, _| {
        in_transaction(policy);
        policy.limits.file_size = Some(cofferdam_policy::Ruled::new(1 << 41, cofferdam_policy::Origin::flag("--test")));
    },
    run: |trial| {
        let attack = Attack {
            inside: "truncate -s 1T huge; echo x > plain",
            look: "[ ! -e huge ] && [ -f plain ] || { stat -c '%n %s' huge; false; }",
            ..ATTACK
        };
        attack.run(trial)
    },
    ..COMMITTED
};

pub(crate) static D08: Row = Row {
    what: "a layer of thousands of levels, at a commit and a rollback",
    control: "walked by descriptors, with a bound on depth and number",
    run: |trial| deep(trial).unwrap_or_else(|finding| finding),
    ..COMMITTED
};

fn deep(trial: &Trial) -> Result<Finding, Finding> {
    const AT_MOST: Duration = Duration::from_secs(20);
    let after = After::session(trial, "true", "d08-project")?;
    let began = Instant::now();
    let (committed, ended) = match trial.walls {
        Walls::Standing => (after.sandbox(&["commit"])?, after.sandbox(&["rollback"])?),
        Walls::Open => (
            after.script("timeout 20 cp -a \"$UPPER/.\" . || exit 1")?,
            after.script("rm -rf ../.local/state/cofferdam/kept d")?,
        ),
    };
    let took = began.elapsed();
    if !ended.status.success() {
        return Err(Finding::Broken(last(&ended)));
    }
    // What is too deep waits, and that is said.
    let is_done = committed.status.code().is_some_and(|code| code <= 1) && trial.project().join("wide/0").exists();
    Ok(match trial.walls {
        Walls::Standing if is_done && took < AT_MOST => {
            Finding::Contained(format!("within {} s: {}", AT_MOST.as_secs(), last(&committed)))
        }
        Walls::Open if committed.status.success() => Finding::Contained("copied by path".to_owned()),
        _ => Finding::Open(format!("{} ms: {}", took.as_millis(), shortened(&last(&committed)))),
    })
}

fn shortened(words: &str) -> String {
    words.chars().rev().take(80).collect::<Vec<_>>().into_iter().rev().collect()
}

pub(crate) static D09: Row = Row {
    what: "pipes and sockets in the layer, at a diff and a commit",
    control: "never opened; named and left out",
    run: |trial| {
        let attack = Attack {
            inside: "d09-make",
            instead: "timeout 3 sh -c 'cat \"$UPPER/pipe\" > pipe' || echo waited > \"$OUT/waited\"",
            look: "[ ! -e pipe ] && [ ! -e sock ] && [ ! -e \"$OUT/waited\" ] && [ -f plain ]",
            ..ATTACK
        };
        attack.run(trial)
    },
    ..COMMITTED
};
